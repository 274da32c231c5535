"""Where hightide keeps files of its own, as each system wants it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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


def _folder(variable: str, default: str) -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "hightide"
    set_to = os.environ.get(variable, "")
    # The XDG specification: a path that is not absolute is to be ignored.
    return (Path(set_to) if os.path.isabs(set_to) else Path.home() / default) / "hightide"
