"""Scripts in Node that import the page's engine; without Node their tests are skipped."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hightide.web.site_files import ENGINE


def node(script: str, given: Any, folder: Path) -> Any:
    """What a script prints as JSON; `given` is its input."""
    if shutil.which("node") is None:
        pytest.skip("no Node")
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "script.mjs").write_text(script.replace("ENGINE", ENGINE.as_uri()))
    done = subprocess.run(["node", folder / "script.mjs", folder / "given.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
