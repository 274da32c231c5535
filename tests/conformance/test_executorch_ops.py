"""ExecuTorch's own op catalogue: its programs, inputs, goldens and tolerances. A case that is refused is a failure.

`catalogue.zip` has one case of each op and runs in every clone. The whole catalogue runs with `make test-all` where it
lies beside the project.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hightide

PACKED = Path(__file__).with_name("catalogue.zip")
WHOLE = Path(__file__).parents[3] / "shared" / "conformance"


def parameters(manifest: str | bytes, *marks: Any) -> list[Any]:
    return [pytest.param(case, id=f"{case['op']}-{case['case']}", marks=marks) for case in json.loads(manifest)]


def packed_cases() -> list[Any]:
    with zipfile.ZipFile(PACKED) as packed:
        return parameters(packed.read("manifest.json"))


def whole_cases() -> list[Any]:
    manifest = WHOLE / "manifest.json"
    return parameters(manifest.read_bytes(), pytest.mark.slow) if manifest.is_file() else []


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalogue")
    with zipfile.ZipFile(PACKED) as packed:
        packed.extractall(folder)
    return folder


def check(folder: Path, case: dict[str, Any]) -> None:
    def array(spec: dict[str, Any]) -> np.ndarray:
        return np.fromfile(folder / spec["path"], spec["dtype"]).reshape(spec["shape"])

    outputs = hightide.load(folder / case["pte"]).method("forward")(*map(array, case["inputs"]))
    golden = array(case["golden"]).astype(np.float64)
    got = outputs[case["golden"]["output_index"]].astype(np.float64)
    assert got.size == golden.size
    np.testing.assert_allclose(got.reshape(golden.shape), golden, rtol=case["rtol"], atol=case["atol"])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
@pytest.mark.parametrize("case", packed_cases())
def test_a_case_of_each_op(case: dict[str, Any], unpacked: Path) -> None:
    check(unpacked, case)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
@pytest.mark.parametrize("case", whole_cases())
def test_the_whole_catalogue(case: dict[str, Any]) -> None:
    check(WHOLE, case)
