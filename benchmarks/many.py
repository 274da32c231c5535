"""Many requests at once on one model: tokens per second of 1, 8 and 16 of them, and the pause a long prompt makes.

    python benchmarks/many.py [MODEL] [--peers]

All figures are from one process, rounds in turns, so that a busy machine changes them alike: trust the ratios.
`--peers` runs the same requests on llama.cpp Vulkan, with as many sequences (`compare.py --setup llama.cpp`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from peerbench.peer import KINDS, Peer, PeerError

from hightide import Engine
from hightide.llm.default_model import default_model

COUNTS = (1, 8, 16)
PROMPT, ANSWER, ROUNDS = 32, 64, 7
PEER_ANSWER = 16  # tokens: llama.cpp takes a second for each on a software adapter
LONG = 2000  # tokens of the prompt that is read while others answer


class Prompts:
    """Random token ids: no two prompts have anything in common."""

    def __init__(self, vocab: int) -> None:
        self._vocab, self._rng = vocab, np.random.default_rng(0)

    def __call__(self, count: int, length: int) -> list[list[int]]:
        return self._rng.integers(0, self._vocab, (count, length)).tolist()


def run(engine: Engine, given: Sequence[Sequence[int]], answer: int) -> float:
    """New tokens per second of these requests, from `submit` on."""
    start = time.perf_counter()
    requests = [engine.submit(list(ids), max_tokens=answer, ignore_eos=True) for ids in given]
    made = sum(len(request.result().tokens) for request in requests)
    return made / (time.perf_counter() - start)


def pauses(engine: Engine, prompts: Prompts, length: int) -> tuple[float, float]:
    """Seconds: the longest pause of an answer while a prompt of this length is read, and a step of that many rows."""
    request = engine.submit("Count to a thousand: one, two, three,", max_tokens=300, ignore_eos=True)
    for _ in range(4):
        next(request)
    long = engine.submit(*prompts(1, length), max_tokens=1)
    longest, last = 0.0, time.perf_counter()
    while not long.ended:
        next(request)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    request.cancel()
    long.result()
    rows = engine.decoder.max_rows
    steps = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        engine.submit(*prompts(1, rows), max_tokens=1).result()
        steps.append(time.perf_counter() - start)
    return longest, statistics.median(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    model = options.model or default_model()
    with Engine(model, max_sequences=max(COUNTS), context=2304, kv_memory="256 MiB") as engine:
        print(f"{model.name} on {engine.decoder.device}", flush=True)
        prompts = Prompts(engine.decoder.vocab_size)
        compare_counts(engine, prompts)
        longest, step = pauses(engine, prompts, LONG)
        beside = f"  a prompt of {LONG} tokens beside an answer"
        print(
            f"{beside}: a pause of {longest:.2f} s, {longest / step:.2f} steps of {engine.decoder.max_rows}", flush=True
        )
        if options.peers:
            compare_peer(engine, model, prompts)


def compare_counts(engine: Engine, prompts: Prompts) -> None:
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    for n in range(ROUNDS + 1):
        for count in COUNTS:
            rate = run(engine, prompts(count, PROMPT), ANSWER)
            if n:  # the first round compiles
                rates[count].append(rate)
    one = statistics.median(rates[1])
    print(f"  {PROMPT} tokens in, {ANSWER} out, medians of {ROUNDS} rounds")
    for count in COUNTS:
        rate = statistics.median(rates[count])
        print(f"  {count:3} at once: {rate:6.2f} tokens/s, {rate / one:.2f} times one", flush=True)


def compare_peer(engine: Engine, model: Path, prompts: Prompts) -> None:
    kind = next(kind for kind in KINDS if kind.name == "llama.cpp Vulkan")
    try:
        with Peer(kind, model) as peer:
            print(f"  {PROMPT} tokens in, {PEER_ANSWER} out, beside {kind.name} with as many sequences", flush=True)
            for count in COUNTS[1:]:
                peer.parallel(prompts(count, PROMPT), 2)  # compiles, for a minute or two
                given = prompts(count, PROMPT)
                theirs = peer.parallel(given, PEER_ANSWER)
                ours = run(engine, given, PEER_ANSWER)
                line = f"  {count:3} at once: {ours:6.2f} tokens/s, theirs {theirs:6.2f}: {ours / theirs:.1f} times"
                print(line, flush=True)
    except PeerError as error:
        print(error)


if __name__ == "__main__":
    main()
