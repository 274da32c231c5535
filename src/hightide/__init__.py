"""Runs language models and ExecuTorch programs on any WebGPU adapter, at any live shape.

hightide.LLM("model.gguf").generate("Once upon a time").text

forward = hightide.load("model.pte").method("forward")
(logits,) = forward(tokens, input_pos)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hightide.errors import DeviceError, ExportError, HightideError, InputError, ProgramError, UnsupportedError

if TYPE_CHECKING:
    from hightide.gpu.device import adapters
    from hightide.llm.embedder import Embedder
    from hightide.llm.engine import Engine
    from hightide.llm.grammar import Grammar
    from hightide.llm.llm import LLM
    from hightide.llm.options import GenerationOptions
    from hightide.llm.token_sampling import Sampling
    from hightide.media.parts import Audio, Image
    from hightide.pte.program import Method, Program, load
    from hightide.speech.transcriber import Transcriber
    from hightide.tools.export.export_module import export

    __version__: str

__all__ = [
    "LLM",
    "Audio",
    "DeviceError",
    "Embedder",
    "Engine",
    "ExportError",
    "GenerationOptions",
    "Grammar",
    "HightideError",
    "Image",
    "InputError",
    "Method",
    "Program",
    "ProgramError",
    "Sampling",
    "Transcriber",
    "UnsupportedError",
    "__version__",
    "adapters",
    "export",
    "load",
]

# Imported when first asked for: NumPy and wgpu take longer to import than most commands take to run.
_LAZY = {
    "Audio": "hightide.media.parts",
    "Embedder": "hightide.llm.embedder",
    "Engine": "hightide.llm.engine",
    "LLM": "hightide.llm.llm",
    "GenerationOptions": "hightide.llm.options",
    "Grammar": "hightide.llm.grammar",
    "Image": "hightide.media.parts",
    "Method": "hightide.pte.program",
    "Program": "hightide.pte.program",
    "Sampling": "hightide.llm.token_sampling",
    "Transcriber": "hightide.speech.transcriber",
    "adapters": "hightide.gpu.device",
    "export": "hightide.tools.export.export_module",
    "load": "hightide.pte.program",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _LAZY:
        raise AttributeError(f"module 'hightide' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def _version() -> str:
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version("hightide"))
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return "0"


def __dir__() -> list[str]:
    return sorted(__all__)
