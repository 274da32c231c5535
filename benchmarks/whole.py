"""Programs as one graph beside the same programs as their files have them: delegates, and NumPy between them.

    python benchmarks/whole.py [--at S=1] [--seconds 20] [PROGRAM.pte ...]

Without names, programs of tests/conformance that are more than one delegate. Inputs have their max dims, unless `--at`
says others. Both forms are called in turns. Times are medians, wall and CPU time; a software adapter's work is CPU time
of this process, so on a busy machine that one counts. The ratio is split by whole.
`tests/conformance/model_exports.py FOLDER bert_384 whisper_decoder_512 dit_384` makes the larger ones of the docs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import hightide
from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.pte.kernel_calls import is_host_work
from hightide.tools.opened_file import open_file

TESTS = Path(__file__).resolve().parents[1] / "tests"
NAMES = ("bert", "gpt2", "vit", "mobilenet_v3", "llama_nokv", "llama_e8", "symints_between", "portable", "cnn_int8")
ROUNDS = 51


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", type=Path)
    parser.add_argument("--at", default="", metavar="S=1,T=300", help="live sizes; the others are at their max")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each program")
    args = parser.parse_args()
    at = {name: int(size) for name, _, size in (part.partition("=") for part in args.at.split(",") if part)}
    warnings.simplefilter("ignore")
    form = "parts, ops on NumPy, dispatches, ms, CPU ms"
    print(f"| program | as in the file: {form} | whole: {form} | split by whole | CPU |")
    print("| --- | --- | --- | --- | --- |")
    for path in args.programs or [TESTS / "conformance" / f"{name}.pte" for name in NAMES]:
        forms = {whole: hightide.load(path, whole=whole) for whole in (False, True)}
        given = _inputs(path, at)
        times = _timed({whole: program.method() for whole, program in forms.items()}, given, args.seconds)
        cells = [f"{_counts(forms[whole], given)}, {_ms(times[whole])}" for whole in (False, True)]
        ratios = [f"{split / whole:.2f}" for split, whole in zip(times[False], times[True], strict=True)]
        print(f"| {path.stem} | {' | '.join((*cells, *ratios))} |", flush=True)
        for program in forms.values():
            program.close()


def _counts(program: hightide.Program, given: list[np.ndarray]) -> str:
    """What a call runs: graphs on the GPU, ops on NumPy (sizes aside), dispatches."""
    calls = program.file.methods["forward"].instructions
    parts = sum(isinstance(call, DelegateCall) for call in calls)
    kernels = sum(isinstance(call, KernelCall) and not is_host_work(call.op) for call in calls)
    explained = program.method().explain(*given)
    dispatches = sum(part.dispatches for part in (explained if isinstance(explained, tuple) else (explained,)))
    return f"{parts}, {kernels}, {dispatches}"


def _inputs(path: Path, at: Mapping[str, int]) -> list[np.ndarray]:
    """Inputs of a program that is one graph."""
    (part,) = open_file(path).parts
    return part.inputs_at(at)


def _ms(times: tuple[float, float]) -> str:
    return ", ".join(f"{seconds * 1e3:.2f}" for seconds in times)


def _timed(methods: dict[bool, Any], given: list[np.ndarray], seconds: float) -> dict[bool, tuple[float, float]]:
    """Medians of wall and of CPU time."""
    times: dict[bool, list[tuple[float, float]]] = {whole: [] for whole in methods}
    for method in methods.values():
        method(*given)
        method(*given)
    until = time.perf_counter() + seconds
    for _ in range(ROUNDS):
        for whole, method in methods.items():
            begin, cpu = time.perf_counter(), time.process_time()
            method(*given)
            times[whole].append((time.perf_counter() - begin, time.process_time() - cpu))
        if time.perf_counter() > until:
            break
    return {whole: (median(w for w, _ in each), median(c for _, c in each)) for whole, each in times.items()}


if __name__ == "__main__":
    main()
