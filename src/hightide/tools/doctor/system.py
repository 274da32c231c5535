"""The machine's Vulkan setup: the loader, the drivers it would load, the GPUs and who may use them.

Nothing here needs a GPU or WebGPU. Everything is read below `root`, so that tests can describe other machines.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOADERS = {"linux": ("libvulkan.so.1", "libvulkan.so"), "win32": ("vulkan-1.dll",)}
VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel", 0x106B: "Apple", 0x1AF4: "virtio", 0x1414: "Microsoft"}
# Where the Vulkan loader looks for driver files on Linux, besides two folders of the user.
ICD_FOLDERS = (
    "etc/vulkan/icd.d",
    "usr/local/etc/vulkan/icd.d",
    "usr/local/share/vulkan/icd.d",
    "usr/share/vulkan/icd.d",
)


@dataclass(frozen=True)
class Driver:
    """A driver file of the Vulkan loader (an "ICD"): which library it names, and what is wrong with it, or ""."""

    file: str
    library: str
    problem: str = ""


@dataclass(frozen=True)
class Gpu:
    """A display device of the kernel, and whether this user may use its render node."""

    vendor: str  # "NVIDIA", or "0x1234"
    node: str  # /dev/dri/renderD128, or "" if there is none
    allowed: bool
    group: str  # that owns the node


@dataclass(frozen=True)
class System:
    """What decides which adapters WebGPU finds on a machine."""

    platform: str  # linux, darwin, win32
    machine: str  # x86_64, arm64
    distro: str  # "debian", "ubuntu", …: the ID of /etc/os-release
    like: tuple[str, ...]  # that and what it is like: ("ubuntu", "debian")
    release: str  # "Debian GNU/Linux 12 (bookworm)"
    version: str  # "12"
    container: bool
    wsl: bool
    root_user: bool
    loader: str  # the Vulkan loader's library, or ""
    drivers: tuple[Driver, ...]
    overridden_by: str  # the environment variable that replaces the search for drivers, or ""
    gpus: tuple[Gpu, ...]
    nvidia_kernel: str  # the version of NVIDIA's kernel module, or ""
    nvidia_capabilities: str | None  # NVIDIA_DRIVER_CAPABILITIES of a container

    def is_like(self, *names: str) -> bool:
        return any(name in self.like for name in names)


def read_system(
    root: Path = Path("/"),
    env: Mapping[str, str] | None = None,
    on: str = sys.platform,
    loads: Callable[[str], bool] | None = None,
    root_user: bool | None = None,
) -> System:
    """This machine; or the one that is described below `root`, where `loads` says which libraries there are."""
    env = os.environ if env is None else env
    loads = loads or _loads
    release = _os_release(root)
    drivers, variable = _drivers(root, env, loads) if on == "linux" else ((), "")
    distro = release.get("ID", "")
    return System(
        platform=on,
        machine=platform.machine(),
        distro=distro,
        like=(distro, *release.get("ID_LIKE", "").split()),
        release=release.get("PRETTY_NAME", "") or platform.platform(terse=True),
        version=release.get("VERSION_ID", ""),
        container=_in_container(root, env),
        wsl="microsoft" in _read(root / "proc/version").lower(),
        root_user=_is_root() if root_user is None else root_user,
        loader=next((name for name in LOADERS.get(on, ()) if loads(name)), ""),
        drivers=drivers,
        overridden_by=variable,
        gpus=_gpus(root) if on == "linux" else (),
        nvidia_kernel=_nvidia_version(root),
        nvidia_capabilities=env.get("NVIDIA_DRIVER_CAPABILITIES"),
    )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text("utf-8", errors="replace")
    return ""


def _os_release(root: Path) -> dict[str, str]:
    text = _read(root / "etc/os-release") or _read(root / "usr/lib/os-release")
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key: value.strip().strip("\"'") for key, value in pairs}


def _in_container(root: Path, env: Mapping[str, str]) -> bool:
    marks = (root / ".dockerenv", root / "run/.containerenv")
    groups = _read(root / "proc/1/cgroup")
    named = any(word in groups for word in ("docker", "kubepods", "containerd", "lxc"))
    return named or "container" in env or "KUBERNETES_SERVICE_HOST" in env or any(mark.exists() for mark in marks)


def _drivers(root: Path, env: Mapping[str, str], loads: Callable[[str], bool]) -> tuple[tuple[Driver, ...], str]:
    """The driver files that the loader would take, and the variable that names them, if one does."""
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        if env.get(variable):
            named = [Path(part) for part in env[variable].split(os.pathsep) if part]
            files = [file for path in named for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
            return tuple(_driver(file, loads) for file in files), variable
    folders = [root / folder for folder in ICD_FOLDERS]
    home = env.get("HOME", "")
    for base in (env.get("XDG_CONFIG_HOME") or f"{home}/.config", env.get("XDG_DATA_HOME") or f"{home}/.local/share"):
        folders.append(root / base.lstrip("/") / "vulkan/icd.d")
    found = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*.json"))]
    return tuple(_driver(file, loads) for file in found), ""


def _driver(file: Path, loads: Callable[[str], bool]) -> Driver:
    if not file.is_file():
        return Driver(str(file), "", "there is no such file")
    try:
        library = str(json.loads(file.read_text("utf-8"))["ICD"]["library_path"])
    except (OSError, ValueError, KeyError, TypeError):
        return Driver(str(file), "", "it is not a driver file: JSON with ICD and library_path")
    # A path with a slash is absolute or relative to the file; a bare name is looked up as any library.
    path = str((file.parent / library).resolve()) if "/" in library else library
    return Driver(str(file), path, "" if loads(path) else "its library cannot be loaded")


def _gpus(root: Path) -> tuple[Gpu, ...]:
    found = []
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        if "-" in card.name:  # a connector of a card
            continue
        with suppress(ValueError):
            vendor = int(_read(card / "device/vendor").strip() or "0", 16)
            nodes = sorted(path.name for path in (card / "device/drm").glob("renderD*"))
            node = root / "dev/dri" / nodes[0] if nodes else None
            exists = node is not None and node.exists()
            found.append(
                Gpu(
                    VENDORS.get(vendor, f"{vendor:#06x}"),
                    f"/dev/dri/{nodes[0]}" if exists else "",
                    node is not None and os.access(node, os.R_OK | os.W_OK),
                    _group(node) if node is not None and exists else "",
                )
            )
    return tuple(gpu for gpu in found if gpu.vendor != "0x0000")


def _group(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError, NotImplementedError):
        return str(path.stat().st_gid)


def _nvidia_version(root: Path) -> str:
    """Of a line like "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.120  Fri Sep 13 …"."""
    words = _read(root / "proc/driver/nvidia/version").split("\n")[0].split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")
