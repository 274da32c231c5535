"""Where hightide keeps files of its own, as each system wants it, and how a file is replaced whole."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def state_folder() -> Path:
    """What is to outlast a run: the chat's history, the model used last."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "hightide"
    return _folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path:
    """What can be fetched again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hightide"
    return _folder("XDG_CACHE_HOME", ".cache")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends; if it fails, `path` stays as it is."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a device or a pipe; a folder, which cannot be opened
        with target.open("wb") as file:
            yield file
        return
    partial = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex[:8]}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError):
            shutil.copymode(target, partial)
        os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _folder(variable: str, default: str) -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "hightide"
    set_to = os.environ.get(variable, "")
    # The XDG specification: a path that is not absolute is to be ignored.
    return (Path(set_to) if os.path.isabs(set_to) else Path.home() / default) / "hightide"
