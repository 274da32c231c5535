"""How much memory the machine has, and how much of it a process may still take."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that are free, as far as the container may have them; 0 if the system does not say."""
    sizes = []
    with suppress(OSError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        sizes += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for most, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # "max" is no number: there is no limit
            sizes.append(int((root / most).read_text()) - int((root / used).read_text()))
    return max(0, min(sizes)) if sizes else total_memory()


def total_memory() -> int:
    """Bytes of the machine; 0 if the system does not say."""
    if sys.platform == "win32":
        return 0
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0
