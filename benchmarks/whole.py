"""Programs as one graph beside the same programs as their files have them: delegates, and NumPy between them.

    python benchmarks/whole.py [PROGRAM.pte ...]

Without names, programs of tests/conformance that are more than one delegate. Inputs have their max dims. Both forms are
called in turns; times are medians of wall time, the ratio is split by whole.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import hightide
from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.tools.opened_file import open_file

TESTS = Path(__file__).resolve().parents[1] / "tests"
NAMES = ("bert", "gpt2", "vit", "mobilenet_v3", "llama_nokv", "llama_e8", "symints_between", "portable", "cnn_int8")
ROUNDS, SECONDS = 51, 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", type=Path)
    paths = parser.parse_args().programs or [TESTS / "conformance" / f"{name}.pte" for name in NAMES]
    warnings.simplefilter("ignore")
    print("| program | as in the file: parts, ops on NumPy, ms | whole: parts, ops on NumPy, ms | split by whole |")
    print("| --- | --- | --- | --- |")
    for path in paths:
        forms = {whole: hightide.load(path, whole=whole) for whole in (False, True)}
        times = _timed({whole: program.method() for whole, program in forms.items()}, _largest(path))
        cells = [f"{_counts(forms[whole])}, {times[whole] * 1e3:.2f}" for whole in (False, True)]
        print(f"| {path.stem} | {cells[0]} | {cells[1]} | {times[False] / times[True]:.2f} |", flush=True)
        for program in forms.values():
            program.close()


def _counts(program: hightide.Program) -> str:
    calls = program.file.methods["forward"].instructions
    parts, kernels = (sum(isinstance(call, kind) for call in calls) for kind in (DelegateCall, KernelCall))
    return f"{parts}, {kernels}"


def _largest(path: Path) -> list[np.ndarray]:
    """Inputs at the max dims, of a program that is one graph."""
    (part,) = open_file(path).parts
    return part.inputs_at({})


def _timed(methods: dict[bool, Any], given: list[np.ndarray]) -> dict[bool, float]:
    times: dict[bool, list[float]] = {whole: [] for whole in methods}
    for method in methods.values():
        method(*given)
        method(*given)
    until = time.perf_counter() + SECONDS
    for _ in range(ROUNDS):
        for whole, method in methods.items():
            begin = time.perf_counter()
            method(*given)
            times[whole].append(time.perf_counter() - begin)
        if time.perf_counter() > until:
            break
    return {whole: median(seconds) for whole, seconds in times.items()}


if __name__ == "__main__":
    main()
