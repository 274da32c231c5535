"""What all tests share: the device (without an adapter its tests are skipped, and say so), stable examples."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from hypothesis import settings

from hightide.cli import main
from hightide.gpu.device import Device, adapters, find_adapter, open_device

# The routes that are tested do not depend on what was measured or proven on this machine.
os.environ["HIGHTIDE_TUNED"] = os.environ["HIGHTIDE_PROVE"] = "0"
settings.register_profile("stable", derandomize=True, database=None, deadline=None)
settings.load_profile("stable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def device() -> Device:
    """The best adapter's, shared by all tests of a process: as every program shares it."""
    if not adapters():
        pytest.skip("no WebGPU adapter")
    return open_device(find_adapter(None))


@pytest.fixture
def hightide(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; gives (exit code, stdout, stderr)."""

    def command(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hightide", *map(str, args)])
        with pytest.raises(SystemExit) as done:
            main()
        captured = capsys.readouterr()
        return int(done.value.code or 0), captured.out, captured.err

    return command
