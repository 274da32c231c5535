"""Where a measurement was taken: adapter, driver, versions, processor, how busy the machine was."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hightide.gpu.device import Adapter

PACKAGES = ("hightide", "wgpu", "numpy")


def describe(adapter: Adapter) -> dict[str, Any]:
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "adapter": adapter.name,
        "kind": adapter.kind,
        "backend": adapter.backend,
        "driver": adapter.driver,
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": platform.platform(terse=True),
        "versions": {"Python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "load": load(),
    }


def load() -> float | None:
    """Processes that wanted a core in the last minute; None where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def peak_host_bytes() -> int | None:
    """The most memory this process had resident."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
