"""`hightide kernels` as a user calls it, as far as that needs no driver."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from hightide.errors import HightideError
from hightide.tools.kernels import null_device
from hightide.tools.kernels.drivers import driver_file


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(null_device, "find_spec", lambda name: None if name == "vulkan" else find(name))
    with pytest.raises(HightideError, match=r"pip install 'hightide\[kernels\]'"):
        null_device.compile_for("NAVI31", [])


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hightide.tools.kernels.drivers.FOLDERS", (str(tmp_path),))
    with pytest.raises(HightideError, match="apt-get install mesa-vulkan-drivers"):
        driver_file("radeon", "RADV")
    (tmp_path / "radeon_icd.x86_64.json").write_text("{}")
    assert driver_file("radeon", "RADV") == str(tmp_path / "radeon_icd.x86_64.json")


def test_bindings_of_spirv() -> None:
    def instruction(kind: int, *words: int) -> list[int]:
        return [(len(words) + 1) << 16 | kind, *words]

    name = int.from_bytes(b"go\0\0", "little")
    words: list[Any] = [0x07230203, 0x10300, 0, 10, 0]
    words += instruction(15, 5, 1, name)  # an entry point
    words += instruction(16, 1, 17, 32, 2, 1)  # and its workgroups
    for id, group, binding in ((7, 0, 2), (8, 0, 0), (9, 1, 1)):
        words += instruction(71, id, 34, group) + instruction(71, id, 33, binding)
    words += instruction(59, 3, 7, 12) + instruction(59, 3, 8, 2) + instruction(59, 3, 9, 12)
    data = b"".join(word.to_bytes(4, "little") for word in words)
    read = null_device.read_spirv(data)
    assert (read.entry, read.buffers) == ("go", [(0, 0, True), (0, 2, False), (1, 1, False)])
    assert read.lanes == 64
