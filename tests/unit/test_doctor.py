"""The doctor on machines described in a folder: what it finds, and the command it gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hightide.gpu import measurements
from hightide.gpu.device import Adapter
from hightide.tools.doctor.fits import CLASSES, adapter_memory, find_fits
from hightide.tools.doctor.remedies import Finding, find_problems
from hightide.tools.doctor.selftest import compare, kernels_digest
from hightide.tools.doctor.system import System, read_system

OS = {
    "debian": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "ubuntu": "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=24.04\n",
    "mint": 'ID=linuxmint\nID_LIKE="ubuntu debian"\n',
    "fedora": "ID=fedora\nVERSION_ID=42\n",
    "rocky": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "arch": "ID=arch\n",
    "suse": 'ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n',
    "alpine": "ID=alpine\n",
    "plan9": "ID=plan9\n",
}
LLVMPIPE = Adapter(0, "llvmpipe", "CPU", "Vulkan", "Mesa 25.0.7", {}, (), None)


class Machine:
    """A root folder to be described."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.libraries: set[str] = set()
        self.env: dict[str, str] = {"HOME": "/home/me"}

    def write(self, path: str, text: str) -> Machine:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)
        return self

    def distro(self, name: str) -> Machine:
        return self.write("etc/os-release", OS[name])

    def container(self) -> Machine:
        return self.write(".dockerenv", "")

    def loader(self) -> Machine:
        self.libraries.add("libvulkan.so.1")
        return self

    def driver(self, name: str, loads: bool = True) -> Machine:
        if loads:
            self.libraries.add(f"libvulkan_{name}.so")
        entry = {"file_format_version": "1.0.0", "ICD": {"library_path": f"libvulkan_{name}.so"}}
        return self.write(f"usr/share/vulkan/icd.d/{name}_icd.json", json.dumps(entry))

    def gpu(self, vendor: int, node: bool = True) -> Machine:
        self.write("sys/class/drm/card0/device/vendor", f"{vendor:#06x}\n")
        self.write("sys/class/drm/card0-HDMI-A-1/status", "connected")
        (self.root / "sys/class/drm/card0/device/drm/renderD128").mkdir(parents=True)
        if node:
            self.write("dev/dri/renderD128", "")
        return self

    def system(self, on: str = "linux", root_user: bool = False) -> System:
        return read_system(self.root, self.env, on, self.libraries.__contains__, root_user)

    def problems(self, *adapters: Adapter, vulkan: int = 0, root_user: bool = False) -> list[Finding]:
        return find_problems(self.system(root_user=root_user), adapters, vulkan)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("distro", "command"),
    [
        ("debian", "sudo apt-get install -y libvulkan1 mesa-vulkan-drivers"),
        ("ubuntu", "sudo apt-get install -y libvulkan1 mesa-vulkan-drivers"),
        ("mint", "sudo apt-get install -y libvulkan1 mesa-vulkan-drivers"),
        ("fedora", "sudo dnf install -y vulkan-loader mesa-vulkan-drivers"),
        ("rocky", "sudo dnf install -y vulkan-loader mesa-vulkan-drivers"),
        ("arch", "sudo pacman -S --needed vulkan-icd-loader vulkan-swrast"),
        ("suse", "sudo zypper install libvulkan1 libvulkan_lvp"),
        ("alpine", "sudo apk add vulkan-loader mesa-vulkan-swrast"),
    ],
)
def test_without_a_loader_it_says_how_to_install_one_here(machine: Machine, distro: str, command: str) -> None:
    (finding,) = machine.distro(distro).problems()
    assert finding.grave and "libvulkan.so.1" in finding.what and finding.fix == command


def test_an_unknown_system_gets_words_instead_of_a_command(machine: Machine) -> None:
    (finding,) = machine.distro("plan9").problems()
    assert finding.fix.startswith("install a Vulkan loader")


def test_root_in_a_container_needs_no_sudo_but_package_lists(machine: Machine) -> None:
    (finding,) = machine.distro("debian").container().problems(root_user=True)
    assert finding.fix == "apt-get update && apt-get install -y libvulkan1 mesa-vulkan-drivers"


def test_a_loader_without_drivers(machine: Machine) -> None:
    (finding,) = machine.distro("fedora").loader().problems()
    assert "no driver" in finding.what and "mesa-vulkan-drivers" in finding.fix


def test_drivers_whose_libraries_are_gone(machine: Machine) -> None:
    machine.distro("debian").loader().driver("lvp", loads=False)
    (driver,) = machine.system().drivers
    assert driver.library == "libvulkan_lvp.so" and "cannot be loaded" in driver.problem
    (finding,) = machine.problems()
    assert "lvp_icd.json" in finding.what and "install --reinstall -y" in finding.fix


def test_drivers_that_find_no_device(machine: Machine) -> None:
    (finding,) = machine.distro("arch").loader().driver("intel").problems()
    assert "libvulkan_intel.so" in finding.what and "vulkan-swrast" in finding.fix


def test_a_variable_that_names_a_missing_driver(machine: Machine) -> None:
    missing = str(machine.root / "missing.json")
    machine.distro("debian").loader().driver("lvp").env["VK_DRIVER_FILES"] = missing
    (finding,) = machine.problems()
    assert "VK_DRIVER_FILES" in finding.what and missing in finding.what
    assert finding.fix == "unset VK_DRIVER_FILES"


def test_a_variable_may_name_a_folder(machine: Machine) -> None:
    machine.loader().driver("lvp").env["VK_ICD_FILENAMES"] = str(machine.root / "usr/share/vulkan/icd.d")
    system = machine.system()
    assert system.overridden_by == "VK_ICD_FILENAMES" and [d.problem for d in system.drivers] == [""]


def test_a_driver_file_that_is_none(machine: Machine) -> None:
    machine.write("etc/vulkan/icd.d/odd.json", "[]").write("home/me/.local/share/vulkan/icd.d/mine.json", "{")
    assert ["not a driver file" in driver.problem for driver in machine.system().drivers] == [True, True]


def test_a_driver_file_with_a_path_beside_it(machine: Machine) -> None:
    library = str((machine.root / "opt/libdriver.so").resolve())
    machine.libraries.add(library)
    machine.write("opt/driver.json", '{"ICD": {"library_path": "./libdriver.so"}}')
    machine.env["VK_DRIVER_FILES"] = str(machine.root / "opt/driver.json")
    (driver,) = machine.system().drivers
    assert driver.library == library and not driver.problem


def test_a_gpu_that_the_user_may_not_use(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.distro("ubuntu").loader().driver("radeon").driver("lvp").gpu(0x1002)
    monkeypatch.setattr("hightide.tools.doctor.system.os.access", lambda path, mode: False)
    monkeypatch.setattr(Path, "group", lambda self: "render")
    (finding,) = machine.problems(LLVMPIPE)
    assert not finding.grave and "AMD" in finding.what and "/dev/dri/renderD128" in finding.what
    assert finding.fix == "sudo usermod -aG render $USER, then log in again"
    (finding,) = machine.container().problems(LLVMPIPE)
    assert finding.fix == "start the container with --device /dev/dri --group-add render"


def test_a_gpu_that_the_container_does_not_see(machine: Machine) -> None:
    machine.distro("ubuntu").container().loader().driver("lvp").gpu(0x8086, node=False)
    (finding,) = machine.problems(LLVMPIPE)
    assert "Intel" in finding.what and "--device /dev/dri" in finding.fix


def test_a_gpu_without_its_driver(machine: Machine) -> None:
    (finding,) = machine.distro("arch").loader().driver("lvp").gpu(0x1002).problems(LLVMPIPE)
    assert finding.fix == "sudo pacman -S --needed vulkan-icd-loader vulkan-swrast vulkan-radeon"


def test_a_gpu_that_is_used_is_no_problem(machine: Machine) -> None:
    gpu = Adapter(0, "AMD Radeon", "DiscreteGPU", "Vulkan", "radv Mesa 25.0.7", {}, (), None)
    assert machine.distro("arch").loader().driver("radeon").gpu(0x1002).problems(gpu) == []


NVIDIA_VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.120  Fri Sep 13 10:10:01 UTC 2024\nGCC version:\n"


def test_nvidia_in_a_container(machine: Machine) -> None:
    machine.distro("ubuntu").container().write("proc/driver/nvidia/version", NVIDIA_VERSION)
    machine.env["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
    assert machine.system().nvidia_kernel == "550.120"
    fixes = [finding.fix for finding in machine.problems()]
    assert fixes[-1] == "start the container with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,graphics"
    machine.env["NVIDIA_DRIVER_CAPABILITIES"] = "all"
    assert "nvidia-container-toolkit" in machine.problems()[-1].fix


@pytest.mark.parametrize(
    ("distro", "package"),
    [("ubuntu", "libnvidia-gl-550"), ("debian", "nvidia-vulkan-icd"), ("arch", "nvidia-utils"), ("fedora", "akmod")],
)
def test_nvidia_without_its_vulkan_part(machine: Machine, distro: str, package: str) -> None:
    machine.distro(distro).loader().driver("lvp").gpu(0x10DE).write("proc/driver/nvidia/version", NVIDIA_VERSION)
    (finding,) = machine.problems(LLVMPIPE)
    assert "550.120" in finding.what and package in finding.fix


def test_nvidia_without_any_driver(machine: Machine) -> None:
    (finding,) = machine.distro("ubuntu").loader().driver("lvp").gpu(0x10DE).problems(LLVMPIPE)
    assert "not loaded" in finding.what and finding.fix == "sudo ubuntu-drivers install && sudo reboot"


def test_wsl(machine: Machine) -> None:
    machine.distro("ubuntu").loader().driver("lvp").write("proc/version", "Linux version 5.15 microsoft-standard-WSL2")
    (finding,) = machine.problems(LLVMPIPE)
    assert machine.system().wsl and "WSL" in finding.what and "dzn" in finding.fix


def test_other_systems(machine: Machine) -> None:
    (mac,) = find_problems(machine.system("darwin"), (), 0)
    (windows,) = find_problems(machine.system("win32"), (), 0)
    assert "Metal" in mac.what and "Direct3D" in windows.what and mac.grave and windows.grave


def test_an_old_mesa_is_slow(machine: Machine) -> None:
    old = Adapter(0, "llvmpipe", "CPU", "Vulkan", "Mesa 22.3.6 (LLVM 15.0.6)", {}, (), None)
    (finding,) = machine.distro("debian").loader().driver("lvp").problems(old)
    assert not finding.grave and "Mesa 22.3" in finding.what and "-t bookworm-backports" in finding.fix
    assert machine.problems(LLVMPIPE) == []


def test_devices_that_webgpu_cannot_use(machine: Machine) -> None:
    (finding,) = machine.distro("debian").loader().driver("old").problems(vulkan=1)
    assert "Vulkan lists 1 device(s)" in finding.what


def test_what_fits() -> None:
    fits = find_fits(6 << 30, half_caches=True, read_gb_s=100)
    by_name = {fit.name: fit for fit in fits}
    assert [fit.needs for fit in fits] == sorted(fit.needs for fit in fits)
    eight = by_name["8B (Llama 3.1)"]
    assert eight.fits and 5.0e9 < eight.needs < 5.6e9  # the Q4_0 file has 4.66 GB, the caches 0.54
    assert 15 < eight.tokens_per_second < 20
    assert not by_name["14B (Qwen2.5)"].fits
    assert find_fits(6 << 30, half_caches=False)[-1].needs > fits[-1].needs
    assert len(fits) == len(CLASSES)


def test_memory_is_the_devices_own_or_what_is_free(tmp_path: Path) -> None:
    gpu = Adapter(0, "Radeon", "DiscreteGPU", "Vulkan", "", {}, (), None)
    machine = Machine(tmp_path).write("proc/meminfo", "MemTotal: 99 kB\nMemAvailable:   1000 kB\n")
    assert adapter_memory(gpu, [("other", 5), ("Radeon", 7)], tmp_path) == 7
    assert adapter_memory(LLVMPIPE, [("llvmpipe", 1 << 40)], tmp_path) == 1000 * 1024
    machine.write("sys/fs/cgroup/memory.max", "5000\n").write("sys/fs/cgroup/memory.current", "2000\n")
    assert adapter_memory(LLVMPIPE, [("llvmpipe", 1 << 40)], tmp_path) == 3000
    machine.write("sys/fs/cgroup/memory.max", "max\n")
    assert adapter_memory(LLVMPIPE, [], tmp_path) == 1000 * 1024


def test_compare() -> None:
    ones = np.ones(4, np.float32)
    assert compare(ones, np.ones(4), 1e-6) == (0.0, "")
    assert "NaN" in compare(np.array([1, np.nan], np.float32), np.ones(2), 1e-6)[1]
    assert "dims" in compare(ones, np.ones((2, 2)), 1e-6)[1]
    assert "1 of 2 integers" in compare(np.array([1, 2]), np.array([1, 3]), 1e-6)[1]
    assert "over" in compare(ones, np.full(4, 1.1), 1e-6)[1]


def test_what_is_kept_survives_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path / "cache")
    assert measurements.load("x.json") == {}
    measurements.save("x.json", {"a": 1})
    assert measurements.load("x.json") == {"a": 1}
    for damage in ("", "{", "[1]", "\0"):
        (tmp_path / "cache" / "x.json").write_text(damage)
        assert measurements.load("x.json") == {}
    assert kernels_digest() == kernels_digest()
    other = Adapter(1, "llvmpipe", "CPU", "Vulkan", "Mesa 25.0.8", {}, (), None)
    assert measurements.adapter_key(LLVMPIPE) != measurements.adapter_key(other)


@pytest.mark.skipif(os.name == "nt", reason="a folder that cannot be written is made by its mode")
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path / "file" / "cache")
    measurements.save("x.json", {"a": 1})
    assert measurements.load("x.json") == {}


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are hidden through the Vulkan loader of Linux")
@pytest.mark.slow
def test_the_command_without_any_adapter(tmp_path: Path) -> None:
    env = {**os.environ, "VK_DRIVER_FILES": str(tmp_path / "missing.json"), "XDG_CACHE_HOME": str(tmp_path)}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hightide", *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)

    found = json.loads(run("doctor", "--json").stdout)
    assert not found["healthy"] and found["adapters"] == [] and found["problems"][0]["fix"] == "unset VK_DRIVER_FILES"
    done = run("tune")
    assert done.returncode == 1 and done.stderr.startswith("hightide: ") and len(done.stderr.splitlines()) == 1
