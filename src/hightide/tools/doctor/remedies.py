"""Explains why no adapter was found, or only a slow one, and which command fixes it on this system."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hightide.gpu.device import Adapter
from hightide.tools.doctor.system import Gpu, System


@dataclass(frozen=True)
class Finding:
    """Something that keeps programs from a good adapter; `fix` is a command, or says what to do."""

    grave: bool  # nothing runs on a GPU until it is fixed
    what: str
    fix: str


# Packages with the loader and Mesa's drivers, which include a software adapter, and with drivers for one vendor's GPUs.
_PACKAGES: dict[str, tuple[str, dict[str, str]]] = {
    "apt": ("libvulkan1 mesa-vulkan-drivers", {}),
    "dnf": ("vulkan-loader mesa-vulkan-drivers", {}),
    "pacman": ("vulkan-icd-loader vulkan-swrast", {"AMD": "vulkan-radeon", "Intel": "vulkan-intel"}),
    "zypper": ("libvulkan1 libvulkan_lvp", {"AMD": "libvulkan_radeon", "Intel": "libvulkan_intel"}),
    "apk": ("vulkan-loader mesa-vulkan-swrast", {"AMD": "mesa-vulkan-ati", "Intel": "mesa-vulkan-intel"}),
}
_INSTALL = {
    "apt": "apt-get install -y {}",
    "dnf": "dnf install -y {}",
    "pacman": "pacman -S --needed {}",
    "zypper": "zypper install {}",
    "apk": "apk add {}",
}
_MESA_MINIMUM = 23  # Mesa 22 reads storage buffers five to seven times slower on llvmpipe
_WSL_GPU = (
    "install your GPU vendor's current Windows driver, and in WSL a Mesa that has Microsoft's `dzn` driver; or run "
    "hightide on Windows itself, where it uses Direct3D 12"
)


def find_problems(system: System, adapters: Sequence[Adapter], vulkan_devices: int) -> list[Finding]:
    """What is wrong, the most serious first. `vulkan_devices` is how many devices the loader lists."""
    findings = []
    if not adapters:
        findings += _why_none(system, vulkan_devices)
    findings += [f for f in _unused_gpus(system, adapters) if f not in findings]
    if adapters and (old := _old_mesa(system, adapters)) is not None:
        findings.append(old)
    return findings


def _why_none(system: System, vulkan_devices: int) -> list[Finding]:
    """The first cause that explains it: each needs the one before."""
    if system.platform == "darwin":
        return [Finding(True, "Metal lists no device", "run outside a virtual machine, on macOS 12 or newer")]
    if system.platform == "win32":
        what = "neither Direct3D 12 nor Vulkan lists a device"
        return [Finding(True, what, "install the GPU vendor's driver, on Windows 10 or newer")]
    broken = [driver for driver in system.drivers if driver.problem]
    if system.overridden_by and len(broken) == len(system.drivers):
        named = f"{broken[0].file}: {broken[0].problem}" if broken else "no driver file"
        what = f"{system.overridden_by} replaces the search for drivers, and names {named}"
        return [Finding(True, what, f"unset {system.overridden_by}")]
    if not system.loader:
        return [Finding(True, "the Vulkan loader, libvulkan.so.1, is not installed", install(system))]
    if not system.drivers:
        return [Finding(True, "the Vulkan loader is there, but no driver", install(system))]
    if len(broken) == len(system.drivers):
        what = f"none of the {len(broken)} Vulkan drivers can be loaded ({broken[0].file}: {broken[0].problem})"
        return [Finding(True, what, install(system, again=True))]
    if vulkan_devices:
        what = f"Vulkan lists {vulkan_devices} device(s), but none that WebGPU can use: too old, or incomplete"
        return [Finding(True, what, install(system))]
    names = ", ".join(sorted({driver.library.rsplit("/", 1)[-1] for driver in system.drivers if not driver.problem}))
    return [Finding(True, f"drivers are installed ({names}), but none of them finds a device", install(system))]


def _unused_gpus(system: System, adapters: Sequence[Adapter]) -> list[Finding]:
    """A GPU that the kernel knows and no adapter stands for."""
    if any(adapter.kind != "CPU" for adapter in adapters):
        return []
    findings = []
    for gpu in {gpu.vendor: gpu for gpu in system.gpus}.values():
        if gpu.vendor == "NVIDIA":
            continue
        if gpu.node and not gpu.allowed:
            what = f"there is a GPU of {gpu.vendor}, but this user may not use {gpu.node}"
            findings.append(Finding(False, what, _permission(system, gpu)))
        elif not gpu.node and system.container:
            what = f"the machine has a GPU of {gpu.vendor}, which this container does not see"
            findings.append(Finding(False, what, "start the container with --device /dev/dri"))
        elif gpu.vendor in ("AMD", "Intel"):
            what = f"there is a GPU of {gpu.vendor}, but no Vulkan driver for it"
            findings.append(Finding(False, what, install(system, gpu.vendor)))
    if system.nvidia_kernel or any(gpu.vendor == "NVIDIA" for gpu in system.gpus):
        findings.append(_nvidia(system))
    if system.wsl and not findings:
        findings.append(Finding(False, "this is WSL, and its GPU is not used", _WSL_GPU))
    return findings


def _nvidia(system: System) -> Finding:
    if system.container:
        wanted = "graphics" in (system.nvidia_capabilities or "") or "all" in (system.nvidia_capabilities or "")
        what = "there is a GPU of NVIDIA, but the container has no Vulkan driver for it"
        if wanted:
            return Finding(False, what, "update nvidia-container-toolkit on the host and restart the container")
        return Finding(
            False, what, "start the container with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,graphics"
        )
    if not system.nvidia_kernel:
        return Finding(False, "there is a GPU of NVIDIA, but its driver is not loaded", _nvidia_driver(system))
    what = f"NVIDIA's kernel driver {system.nvidia_kernel} is loaded, but its Vulkan driver is missing"
    major = system.nvidia_kernel.split(".")[0]
    if system.distro == "ubuntu" or "ubuntu" in system.like:
        return Finding(False, what, f"{_sudo(system)}apt-get install -y libnvidia-gl-{major} libvulkan1")
    if system.is_like("debian"):
        return Finding(False, what, f"{_sudo(system)}apt-get install -y nvidia-vulkan-icd libvulkan1")
    return Finding(False, what, _nvidia_driver(system))


def _nvidia_driver(system: System) -> str:
    sudo = _sudo(system)
    if system.wsl:
        return _WSL_GPU
    if system.is_like("ubuntu"):
        return f"{sudo}ubuntu-drivers install && {sudo}reboot"
    if system.is_like("debian"):
        return f"{sudo}apt-get install -y nvidia-driver nvidia-vulkan-icd && {sudo}reboot  (needs `non-free` in apt)"
    if system.is_like("fedora", "rhel"):
        return f"{sudo}dnf install -y akmod-nvidia && {sudo}reboot  (from RPM Fusion)"
    if system.is_like("arch"):
        return f"{sudo}pacman -S --needed nvidia nvidia-utils && {sudo}reboot"
    return "install NVIDIA's driver with its Vulkan part, then reboot"


def _permission(system: System, gpu: Gpu) -> str:
    if system.container:
        return f"start the container with --device /dev/dri --group-add {gpu.group}"
    if gpu.group in ("root", "0"):
        return f"{_sudo(system)}chmod a+rw {gpu.node}"
    return f"{_sudo(system)}usermod -aG {gpu.group} $USER, then log in again"


def _old_mesa(system: System, adapters: Sequence[Adapter]) -> Finding | None:
    match = re.search(r"Mesa (\d+)\.(\d+)", adapters[0].driver)
    if match is None or adapters[0].kind != "CPU" or int(match[1]) >= _MESA_MINIMUM:
        return None
    what = f"Mesa {match[1]}.{match[2]} reads weights five to seven times slower than Mesa 25"
    if system.distro == "debian" and system.version == "12":
        return Finding(False, what, f"{_sudo(system)}apt-get install -y -t bookworm-backports mesa-vulkan-drivers")
    return Finding(False, what, "update mesa-vulkan-drivers, or the system")


def install(system: System, vendor: str = "", again: bool = False) -> str:
    """The command that installs a Vulkan loader and drivers here."""
    manager = package_manager(system)
    if manager is None:
        return "install a Vulkan loader (libvulkan.so.1) and a Vulkan driver, such as Mesa's, with your package manager"
    common, vendors = _PACKAGES[manager]
    command = _INSTALL[manager].format(f"{common} {vendors[vendor]}" if vendor in vendors else common)
    if again and manager == "apt":
        command = command.replace("install", "install --reinstall", 1)
    if manager == "apt" and system.container:  # images come without package lists
        command = f"apt-get update && {command}"
    sudo = _sudo(system)
    return " && ".join(sudo + part for part in command.split(" && "))


def package_manager(system: System) -> str | None:
    for names, manager in (
        (("debian", "ubuntu"), "apt"),
        (("fedora", "rhel", "centos"), "dnf"),
        (("arch",), "pacman"),
        (("suse", "opensuse", "opensuse-tumbleweed", "opensuse-leap"), "zypper"),
        (("alpine",), "apk"),
    ):
        if system.is_like(*names):
            return manager
    return None


def _sudo(system: System) -> str:
    return "" if system.root_user else "sudo "
