"""An exported program, built once, at several live lengths and checked against the float64 reference; then a
real model answers a question."""

from __future__ import annotations

import sys
import time
import warnings
from itertools import islice
from pathlib import Path

import numpy as np

import hightide
from hightide.errors import HightideError
from hightide.llm.default_model import default_model
from hightide.runtime.cpu_session import CpuSession

PROGRAM = Path(__file__).parent.parent / "tests" / "conformance" / "smollm2.pte"
# (tokens, position): prefill, decode, a chunk at a position, a restart at the max length, decode again
STEPS = [(7, 0), (1, 7), (1, 8), (13, 9), (1, 22), (47, 0), (1, 47), (2, 48), (33, 50), (1, 83)]
PLAN_LINES = 12
QUESTIONS = ["Why is the sea salty? Answer in two sentences.", "And why is there a tide?"]


def run_program() -> None:
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

    lines = str(forward.explain([[1]], [84])).splitlines()
    print("\nThe plan of one decode step begins so; views and integers cost nothing:\n")
    print("\n".join(islice(lines, PLAN_LINES)))
    print(f"... and {len(lines) - PLAN_LINES} lines more\n")


def chat() -> None:
    start = time.perf_counter()
    llm = hightide.LLM(default_model())
    print(f"{llm.path.name} on {llm.decoder.device}, loaded in {time.perf_counter() - start:.1f} s")
    max_tokens = 32 if llm.decoder.device == CpuSession.name else 96
    messages: list[dict[str, str]] = []
    for question in QUESTIONS:
        print(f"\n> {question}", flush=True)
        messages.append({"role": "user", "content": question})
        stream, answer = llm.stream(messages, max_tokens=max_tokens), ""
        for piece in stream:
            answer += piece.text
            print(piece.text, end="", flush=True)
        print(f"\n[{stream.stats}]", flush=True)
        messages.append({"role": "assistant", "content": answer})
    print(f"\nTalk to it: {Path(sys.executable).parent / 'hightide'} chat")


def main() -> None:
    warnings.simplefilter("always")
    run_program()
    try:
        chat()
    except HightideError as error:  # no network, say
        sys.exit(f"demo: {error}")


if __name__ == "__main__":
    main()
