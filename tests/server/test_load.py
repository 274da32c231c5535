"""A short run of `make load`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_many_clients_while_workers_are_killed() -> None:
    command = [sys.executable, "-m", "load", "--minutes", "0.5", "--kill-every", "10"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "all right" in done.stdout
