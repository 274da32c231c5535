"""An exported program, built once, at several live lengths and checked against the float64 reference; then a
real model answers questions, in this process and through a server."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
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
    llm.close()


def serve() -> None:
    """Start `hightide serve`, ask it once as OpenAI's clients do, and stop it."""
    with tempfile.TemporaryDirectory() as folder:
        up = Path(folder) / "up"
        command = [sys.executable, "-m", "hightide", "serve", "--port", "0", "--ready-file", str(up)]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while not up.exists():
                if server.poll() is not None:
                    sys.exit("demo: hightide serve has ended")
                time.sleep(0.1)
            url = f"{up.read_text().strip()}/v1/chat/completions"
            body = {
                "messages": [{"role": "user", "content": "Name a river in Italy."}],
                "temperature": 0,
                "max_tokens": 24,
            }
            print(f"\n> POST {url}\n> {json.dumps(body)}", flush=True)
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=600) as reply:
                answer = json.load(reply)
            print(answer["choices"][0]["message"]["content"], f"\n[{answer['usage']}]")
        finally:
            server.terminate()
            server.wait(60)


def main() -> None:
    warnings.simplefilter("always")
    run_program()
    try:
        chat()
        serve()
    except HightideError as error:  # no network, say
        sys.exit(f"demo: {error}")
    hightide_command = Path(sys.executable).parent / "hightide"
    print(f"\nTalk to it: {hightide_command} chat\nOr on a page: {hightide_command} serve")


if __name__ == "__main__":
    main()
