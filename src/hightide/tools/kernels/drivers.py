"""Where Mesa's drivers are."""

from __future__ import annotations

import os
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
