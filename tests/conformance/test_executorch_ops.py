"""ExecuTorch's own op catalogue (its cases, inputs, goldens and tolerances), where it lies beside the project.

`make test` takes the first case of each op, `make test-all` every case. A case whose op has no GPU kernel
must be refused when it is loaded, and counts as skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hightide

CATALOGUE = Path(__file__).parents[3] / "shared" / "conformance"
MANIFEST = CATALOGUE / "manifest.json"


def _cases() -> list[Any]:
    if not MANIFEST.is_file():
        return []
    seen: set[str] = set()
    cases = []
    for case in json.loads(MANIFEST.read_text()):
        marks = [pytest.mark.slow] if case["op"] in seen else []
        seen.add(case["op"])
        cases.append(pytest.param(case, id=f"{case['op']}-{case['case']}", marks=marks))
    return cases


def _array(spec: dict[str, Any]) -> np.ndarray:
    return np.fromfile(CATALOGUE / spec["path"], spec["dtype"]).reshape(spec["shape"])


@pytest.mark.gpu
@pytest.mark.skipif(not MANIFEST.is_file(), reason="the catalogue is not here")
@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
@pytest.mark.parametrize("case", _cases())
def test_case(case: dict[str, Any]) -> None:
    try:
        method = hightide.load(CATALOGUE / case["pte"]).method("forward")
    except hightide.UnsupportedError as error:
        pytest.skip(f"refused: {error}")
    outputs = method(*(_array(spec) for spec in case["inputs"]))
    golden = _array(case["golden"]).astype(np.float64)
    got = outputs[case["golden"]["output_index"]].astype(np.float64)
    assert got.size == golden.size
    np.testing.assert_allclose(got.reshape(golden.shape), golden, rtol=case["rtol"], atol=case["atol"])
