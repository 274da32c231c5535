"""Runs ExecuTorch programs on any WebGPU adapter, built once at their largest shape, at any live shape.

    program = hightide.load("model.pte")
    logits, = program.method("forward")(tokens, input_pos)
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from hightide.errors import DeviceError, HightideError, InputError, ProgramError, UnsupportedError

if TYPE_CHECKING:
    from hightide.gpu.device import adapters
    from hightide.program import Method, Program, load

try:
    __version__ = version("hightide")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0"

__all__ = [
    "DeviceError",
    "HightideError",
    "InputError",
    "Method",
    "Program",
    "ProgramError",
    "UnsupportedError",
    "__version__",
    "adapters",
    "load",
]

# Imported when first asked for: NumPy and wgpu take longer to import than most commands take to run.
_LAZY = {
    "Method": "hightide.program",
    "Program": "hightide.program",
    "adapters": "hightide.gpu.device",
    "load": "hightide.program",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'hightide' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
