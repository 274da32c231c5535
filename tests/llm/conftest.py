"""What the tests of language models share."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from hightide.cli import main
from hightide.gpu.device import adapters


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def where(request: pytest.FixtureRequest) -> str | None:
    """The device of a model: the NumPy references, or the GPU where there is an adapter."""
    if request.param == "cpu":
        return "cpu"
    if not adapters():
        pytest.skip("no WebGPU adapter")
    return None


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `hightide`; gives (exit code, stdout, stderr)."""

    def run(*args: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hightide", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as done:
            main()
        captured = capsys.readouterr()
        return int(done.value.code or 0), captured.out, captured.err

    return run
