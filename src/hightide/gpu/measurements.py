"""What was measured or checked on an adapter, kept in the cache folder."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hightide.folders import cache_folder, replacing
from hightide.gpu.device import Adapter
from hightide.gpu.wide_loads import has_wide_loads


def adapter_key(adapter: Adapter) -> str:
    """What a measurement depends on: another driver or another hightide may give another result."""
    loads = ("64-bit loads",) if has_wide_loads(adapter.name, adapter.features) else ()
    return " | ".join((adapter.name, adapter.backend, adapter.driver, *loads, f"hightide {hightide_version()}"))


def load(file: str) -> dict[str, Any]:
    """The entries of a file by key; none if it is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        entries = json.loads((cache_folder() / file).read_text("utf-8"))
        if isinstance(entries, dict):
            return entries
    return {}


def save(file: str, entries: dict[str, Any]) -> None:
    """Replace a file at once; a cache folder that cannot be written is no reason to fail."""
    path = cache_folder() / file
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new:
            new.write(json.dumps(entries, indent=1).encode())


def hightide_version() -> str:
    try:
        return version("hightide")
    except PackageNotFoundError:  # run from its sources
        return "0"
