"""A small program from ExecuTorch's exporter, built once, at several live lengths: its plan, and how
closely each step agrees with the float64 reference."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np

import hightide
from hightide.reference import CpuSession

PROGRAM = Path(__file__).parent.parent / "tests" / "conformance" / "smollm2.pte"
# (tokens, position): prefill, decode, a chunk at a position, a restart at the max length, decode again
STEPS = [(7, 0), (1, 7), (1, 8), (13, 9), (1, 22), (47, 0), (1, 47), (2, 48), (33, 50), (1, 83)]


def main() -> None:
    warnings.simplefilter("always")
    start = time.perf_counter()
    program = hightide.load(PROGRAM)
    forward = program.method("forward")
    session = forward.sessions[0]
    built = time.perf_counter() - start
    print(f"{PROGRAM.name}: {forward!r}")
    print(f"built once in {built:.2f} s on {session.name}, for up to {forward.inputs[0].dims[1]} tokens\n")

    oracle = CpuSession(session.graph, [True, False], dtype="float64")
    rng = np.random.default_rng(0)
    print("  S  pos   dispatches        ms   error, of the range of the logits")
    for length, position in STEPS:
        inputs = rng.integers(0, program.metadata["get_vocab_size"], (1, length)), np.array([position])
        plan = forward.explain(*inputs)
        start = time.perf_counter()
        (logits,) = forward(*inputs)
        elapsed = time.perf_counter() - start
        (exact,) = oracle.run(inputs)
        error = np.abs(logits - exact).max() / np.ptp(exact)
        print(f"{length:3} {position:4} {plan.dispatches:12} {elapsed * 1e3:9.2f}   {error:.1e}")

    print("\nThe plan of one decode step; views and integers cost nothing:\n")
    print(forward.explain([[1]], [84]))


if __name__ == "__main__":
    main()
