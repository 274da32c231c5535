"""What was measured or checked on an adapter, kept in the cache folder by adapter, driver and version."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from hightide.folders import cache_folder

if TYPE_CHECKING:
    from hightide.gpu.device import Adapter

TUNED = "tuned.json"  # what `hightide tune` found, by adapter


def adapter_key(adapter: Adapter) -> str:
    """What a measurement depends on: another driver or another hightide may give another."""
    return " | ".join((adapter.name, adapter.backend, adapter.driver, f"hightide {_version()}"))


def kernels_digest() -> str:
    """Of all kernels and ops: what was checked with others says nothing."""
    digest = sha256()
    pending = [resources.files("hightide.ops")]
    while pending:
        entry = pending.pop()
        if entry.is_dir():
            pending += sorted(entry.iterdir(), key=lambda e: e.name)
        elif entry.name.endswith((".wgsl", ".py")):
            digest.update(entry.name.encode() + entry.read_bytes())
    return digest.hexdigest()[:16]


def load(file: str) -> dict[str, Any]:
    """The entries of a file by key; none if it is missing or damaged."""
    with suppress(OSError, ValueError):
        entries = json.loads((cache_folder() / file).read_text("utf-8"))
        if isinstance(entries, dict):
            return entries
    return {}


def save(file: str, entries: dict[str, Any]) -> None:
    """Replace a file at once; a cache folder that cannot be written is no reason to fail."""
    path = cache_folder() / file
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")  # another process may be doing the same
        new.write_text(json.dumps(entries, indent=1), "utf-8")
        new.replace(path)


def tuned_routes(adapter: Adapter) -> dict[str, str]:
    """What `hightide tune` found for this adapter and driver; HIGHTIDE_TUNED=0 leaves it out."""
    if os.environ.get("HIGHTIDE_TUNED") == "0":
        return {}
    entry = load(TUNED).get(adapter_key(adapter))
    chosen = entry.get("chosen") if isinstance(entry, dict) else None
    return {str(name): str(option) for name, option in chosen.items()} if isinstance(chosen, dict) else {}


def _version() -> str:
    try:
        return version("hightide")
    except PackageNotFoundError:  # run from its sources
        return "0"
