"""Mesa's lavapipe for Chromium's WebGPU: a software adapter with halves, and with subgroups of eight lanes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hightide.errors import HightideError
from hightide.tools.kernels.drivers import driver_file

SOURCE = Path(__file__).with_name("lavapipe_driver.c")


def lavapipe_variables(folder: Path) -> dict[str, str]:
    """With these in its environment Chromium finds lavapipe alone; without a C compiler or Mesa the test is skipped."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: it makes the driver by which Chromium takes Mesa's lavapipe")
    try:
        described = json.loads(Path(driver_file("lvp", "lavapipe")).read_text())
    except HightideError as error:
        pytest.skip(str(error))
    library, driver = folder / "lavapipe_driver.so", folder / "lavapipe_driver.json"
    mesa = described["ICD"]["library_path"]
    options = ["-shared", "-fPIC", "-Wall", "-Werror", f'-DLAVAPIPE="{mesa}"']
    subprocess.run([compiler, *options, str(SOURCE), "-o", str(library), "-ldl"], check=True)
    described["ICD"]["library_path"] = str(library)
    driver.write_text(json.dumps(described))
    return {"LD_PRELOAD": str(library), "VK_DRIVER_FILES": str(driver)}
