"""Programs that a script of this folder exports when they are wanted, or that an environment variable names."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Exported:
    script: str
    variable: str  # a folder of earlier ones

    @property
    def needed(self) -> pytest.MarkDecorator:
        """Skips a test where there are none, and the exporter is missing."""
        missing = not find_spec("executorch") and not os.environ.get(self.variable)
        return pytest.mark.skipif(missing, reason="executorch is not installed (pip install '.[export]')")

    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        if made := os.environ.get(self.variable):
            return Path(made)
        folder = tmp_path_factory.mktemp(Path(self.script).stem)
        script = Path(__file__).parent / self.script
        subprocess.run([sys.executable, str(script), str(folder)], check=True, stdout=subprocess.DEVNULL)
        return folder
