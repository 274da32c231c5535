"""Samples of torch's own op database, exported without a delegate, on the GPU at two live sizes; see `op_samples.py`.

They are exported here, into a temporary folder, where the `export` extra is installed. `HIGHTIDE_OP_SAMPLES` names a
folder of earlier ones.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from exporting import Exported
from schedules import error_of_range, numbered

from hightide import HightideError
from hightide.gpu.device import Device
from hightide.pte.program import load

SAMPLES = Exported("op_samples.py", "HIGHTIDE_OP_SAMPLES")
TOLERANCE = 2e-5  # of an output's range
LEAST = 0.95  # of the samples are right


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SAMPLES.folder(tmp_path_factory)


@pytest.mark.slow
@SAMPLES.needed
def test_samples_of_torch_are_right(samples: Path, device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    programs = json.loads((samples / "index.json").read_text())["programs"]
    outcomes = {name: outcome(samples, stem) for stem, name in programs.items()}
    counts = Counter(text.split(":")[0] for text in outcomes.values())
    with capsys.disabled():
        print(f"\n{dict(counts)}")
        for name, text in outcomes.items():
            if text != "right":
                print(f"  {name}: {text}")
    assert not counts["wrong"]
    claimed = len(programs) - counts["not claimed"]
    assert counts["right"] + counts["right, in part on NumPy"] >= LEAST * claimed


def outcome(folder: Path, stem: str) -> str:
    """Every step of one sample on one session. An op that hightide says it lacks is not claimed."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with load(folder / f"{stem}.pte") as program, np.load(folder / f"{stem}.npz") as arrays:
                for n in range(1 + max(int(key.split(".")[0]) for key in arrays)):
                    inputs, wanted = (numbered(arrays, f"{n}.{kind}") for kind in ("in", "out"))
                    for got, want in zip(program.method()(*inputs), wanted, strict=True):
                        if problem := difference(got, want):
                            return f"wrong: step {n}, {problem}; inputs {[list(array.shape) for array in inputs]}"
        except HightideError as error:
            return f"{'not claimed' if 'that hightide does not support' in str(error) else 'refused'}: {error}"
    outside = [str(warning.message) for warning in told if "runs outside" in str(warning.message)]
    return f"right, in part on NumPy:{outside[0].partition('NumPy:')[2]}" if outside else "right"


def difference(got: np.ndarray, want: np.ndarray) -> str:
    """What is wrong with an output, or nothing."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        return "" if np.array_equal(got, want) else f"{(got != want).sum()} of {want.size} differ"
    if not all(np.array_equal(odd(got), odd(want)) for odd in (np.isnan, np.isposinf, np.isneginf)):
        return "other NaNs or infinities"
    finite = np.isfinite(want)
    if np.allclose(got[finite], want[finite], rtol=1e-6, atol=0):  # they may all be the same: a range of 0
        return ""
    error = error_of_range(got[finite], want[finite])
    return f"error {error:.1e} of the range" if error > TOLERANCE else ""
