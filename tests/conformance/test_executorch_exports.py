"""The programs that ExecuTorch's own WebGPU op tests export, at every live size that they list and more.

Some small ones are in `exports`, as `executorch_exports.py --small` makes them. All of them are exported here, into a
temporary folder, where the `export` extra is installed. `HIGHTIDE_EXPORTS` names a folder of earlier ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from exporting import Exported
from schedules import error_of_range, numbered

from hightide import HightideError
from hightide.gpu.device import Device
from hightide.pte.program import load

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
KEPT = Path(__file__).parent / "exports"
EXPORTS = Exported("executorch_exports.py", "HIGHTIDE_EXPORTS")
TOLERANCE = 2e-4  # of an output's range


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return EXPORTS.folder(tmp_path_factory)


@pytest.mark.parametrize("name", json.loads((KEPT / "index.json").read_text())["programs"])
def test_kept_program_at_every_size(name: str, device: Device) -> None:
    assert run(KEPT, name) > 3


@pytest.mark.slow
@EXPORTS.needed
def test_every_program_at_every_size(exports: Path, device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    index = json.loads((exports / "index.json").read_text())
    wrong, steps = {}, 0
    for stem, name in index["programs"].items():
        try:
            steps += run(exports, stem)
        except (AssertionError, HightideError) as problem:
            wrong[name] = str(problem)
    with capsys.disabled():
        count = len(index["programs"])
        print(f"\n{count - len(wrong)} of {count} programs agree, {steps} steps; {len(index['failed'])} not exported")
    assert index["programs"] and not wrong, "\n".join(f"{name}: {problem}" for name, problem in wrong.items())


def run(folder: Path, stem: str) -> int:
    """Every step of one program on one session; how many they were."""
    method = load(folder / f"{stem}.pte").method("forward")
    with np.load(folder / f"{stem}.npz") as arrays:
        count = 1 + max(int(key.split(".")[0]) for key in arrays)
        for n in range(count):
            inputs, changed, wanted = (numbered(arrays, f"{n}.{kind}") for kind in ("in", "changed", "out"))
            got = method(*inputs)  # first the inputs that were changed
            assert changed or wanted
            pairs = [*zip(got, changed, strict=False), *zip(got[len(got) - len(wanted) :], wanted, strict=True)]
            for array, golden in pairs:
                check(array, golden, f"step {n}, inputs {[list(i.shape) for i in inputs]}")
    return count


def check(got: np.ndarray, want: np.ndarray, where: str) -> None:
    if want.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=where)
        error = error_of_range(np.nan_to_num(got), np.nan_to_num(want))
        assert error <= TOLERANCE, f"{where}: error {error:.1e} of the range"
    else:  # codes may differ by one where a value is halfway
        assert got.shape == want.shape, where
        assert not want.size or np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= (want.itemsize == 1), (
            where
        )
