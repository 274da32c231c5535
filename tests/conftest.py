"""What all tests share: the device (without an adapter its tests are skipped, and say so), stable examples."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hightide.cli import main
from hightide.gpu.device import Device, adapters, find_adapter, open_device

# The routes that are tested do not depend on what was measured or proven on this machine.
os.environ["HIGHTIDE_TUNED"] = os.environ["HIGHTIDE_PROVE"] = "0"
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)  # what is printed does not depend on the terminal
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("stable", derandomize=True, database=None, deadline=None)
settings.load_profile("stable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session", autouse=True)
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders for the tests of a run, not those of the user; Mesa keeps its compiled kernels where it did."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    kept = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    with pytest.MonkeyPatch.context() as patch:
        if "MESA_SHADER_CACHE_DIR" not in os.environ and os.access(kept, os.W_OK):
            patch.setenv("MESA_SHADER_CACHE_DIR", kept)
        patch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
        patch.setenv("XDG_STATE_HOME", str(shared / "state"))
        yield


@pytest.fixture(autouse=True)
def no_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """A browser that is still open has an event loop in this thread; other tests may run one of their own."""
    loop = asyncio._get_running_loop()
    if loop is None or "browser" in request.node.path.parts:
        yield
        return
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)


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
