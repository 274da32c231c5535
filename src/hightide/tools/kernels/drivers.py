"""Where Mesa's drivers are, and processes that use another one than this process does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hightide.errors import HightideError

FOLDERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")


def driver_file(stem: str, name: str) -> str:
    """The file by which Vulkan's loader knows a driver, such as `lvp_icd.json`."""
    found = (path for folder in FOLDERS for path in sorted(Path(folder).glob(f"{stem}_icd*.json")))
    file = next(found, None)
    if file is None:
        raise HightideError(f"Mesa's driver {name} is needed for this; on Debian: apt-get install mesa-vulkan-drivers")
    return os.fspath(file)


def run_module(
    module: str, arguments: Sequence[str], variables: Mapping[str, str], failed: str, given: str | None = None
) -> str:
    """What a module says on stderr, run with these variables and `given` on stdin; HightideError if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, input=given, env=os.environ | variables, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise HightideError(f"{failed}: {last[:300]}")
    return done.stderr
