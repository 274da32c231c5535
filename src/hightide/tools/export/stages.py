"""The stages of an export, and errors that name theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from hightide.errors import ExportError, HightideError

NO_MORE_THAN = 600  # characters of the exporter's own message
TOOLS = {
    "export": "torch.export",
    "partition": "ExecuTorch's Vulkan partitioner",
    "lower": "ExecuTorch's to_executorch",
    "run": "hightide",
}


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Whatever goes wrong becomes one sentence that names the stage, with the tool's own message."""
    try:
        yield
    except Exception as error:  # the exporter raises whatever it meets
        if isinstance(error, ExportError):
            raise
        reason = str(error) if isinstance(error, HightideError) else message_of(error)
        raise ExportError(name, f"stage {name!r} failed in {TOOLS[name]}: {reason}") from error


def message_of(error: BaseException, most: int = NO_MORE_THAN) -> str:
    """The first paragraph of an exporter's message, in one line, without advice about its logs."""
    paragraph = str(error).strip().split("\n\n")[0]
    paragraph = re.sub(r"For more information, run with TORCH_LOGS=\S+\.?", "", paragraph)
    text = " ".join(f"{type(error).__name__}: {paragraph}".split())
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} ..."
