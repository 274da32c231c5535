"""WGSL to SPIR-V, by the same compiler that runs kernels: Mesa's llvmpipe writes what it is given into a folder.

Run as `python -m hightide.tools.kernels.spirv_writer` by `write_spirv`, since the driver reads its variables once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hightide.errors import HightideError
from hightide.gpu.device import find_adapter, open_device
from hightide.tools.kernels.drivers import driver_file, run_module

SUFFIX = ".spirv"


def write_spirv(shaders: Sequence[str], folder: Path) -> list[Path]:
    """A file for each WGSL text, in their order."""
    with tempfile.TemporaryDirectory() as dumps:
        changes = {
            "VK_DRIVER_FILES": driver_file("lvp", "llvmpipe"),
            "MESA_SHADER_CACHE_DISABLE": "1",
            "MESA_SPIRV_DUMP_PATH": dumps,
        }
        failed = "kernels could not be turned into SPIR-V"
        run_module(__name__, [dumps, str(folder)], changes, failed, json.dumps(list(shaders)))
    return [folder / f"{n}{SUFFIX}" for n in range(len(shaders))]


def main() -> None:
    dumps, folder = Path(sys.argv[1]), Path(sys.argv[2])
    shaders: list[str] = json.load(sys.stdin)
    device = open_device(find_adapter(None)).wgpu
    known = set(dumps.iterdir())
    for n, text in enumerate(shaders):
        module = device.create_shader_module(code=text)  # as on a GPU
        device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
        new = set(dumps.iterdir()) - known
        if len(new) != 1:
            raise HightideError(f"{len(new)} files were written for one kernel")
        known |= new
        (folder / f"{n}{SUFFIX}").write_bytes(new.pop().read_bytes())


if __name__ == "__main__":
    main()
