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

from peerbench.peer import KINDS, Peer, PeerError

from hightide import Engine
from hightide.llm.default_model import default_model

COUNTS = (1, 8, 16)
PROMPT, ANSWER, ROUNDS = 32, 24, 3
PEER_ANSWER = 8  # tokens: llama.cpp takes a second for each on a software adapter
LONG = 2000  # tokens of the prompt that is read while others answer


def prompts(count: int, length: int, vocab: int) -> list[list[int]]:
    """Token ids that have nothing in common."""
    return [[1, *((300 + n * 37 + at * 101) % vocab for at in range(1, length))] for n in range(count)]


def run(engine: Engine, given: Sequence[Sequence[int]], answer: int) -> float:
    """New tokens per second of these requests, from the first token of the last one on: decoding together."""
    start = time.perf_counter()
    requests = [engine.submit(list(ids), max_tokens=answer) for ids in given]
    made = sum(len(request.result().tokens) for request in requests)
    return made / (time.perf_counter() - start)


def pauses(engine: Engine, length: int) -> tuple[float, float]:
    """Seconds: the longest pause of an answer while a prompt of this length is read, and a step of that many rows."""
    vocab = engine.decoder.vocab_size
    request = engine.submit(prompts(1, 8, vocab)[0], max_tokens=300)
    for _ in range(4):
        next(request)
    long = engine.submit(prompts(2, length, vocab)[1], max_tokens=1)
    longest, last = 0.0, time.perf_counter()
    while not long.ended:
        next(request)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    request.cancel()
    long.result()
    rows = engine.decoder.max_rows
    steps = []
    for n in range(ROUNDS):
        start = time.perf_counter()
        engine.submit(prompts(9 + n, rows, vocab)[-1], max_tokens=1).result()
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
        compare_counts(engine)
        longest, step = pauses(engine, LONG)
        beside = f"  a prompt of {LONG} tokens beside an answer"
        print(
            f"{beside}: a pause of {longest:.2f} s, {longest / step:.2f} steps of {engine.decoder.max_rows}", flush=True
        )
        if options.peers:
            compare_peer(engine, model)


def compare_counts(engine: Engine) -> None:
    vocab = engine.decoder.vocab_size
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    for n in range(ROUNDS + 1):
        for count in COUNTS:
            rate = run(engine, [[7 + n, *ids] for ids in prompts(count, PROMPT, vocab)], ANSWER)
            if n:  # the first round compiles
                rates[count].append(rate)
    one = statistics.median(rates[1])
    print(f"  {PROMPT} tokens in, {ANSWER} out, medians of {ROUNDS} rounds")
    for count in COUNTS:
        rate = statistics.median(rates[count])
        print(f"  {count:3} at once: {rate:6.2f} tokens/s, {rate / one:.2f} times one", flush=True)


def compare_peer(engine: Engine, model: Path) -> None:
    kind = next(kind for kind in KINDS if kind.name == "llama.cpp Vulkan")
    vocab = engine.decoder.vocab_size
    try:
        with Peer(kind, model) as peer:
            print(
                f"  {PROMPT} tokens in, {PEER_ANSWER} out, beside llama.cpp Vulkan with as many sequences", flush=True
            )
            peer.parallel(prompts(1, PROMPT, vocab), 2)  # compiles
            for count in COUNTS[1:]:
                given = [[3, *ids] for ids in prompts(count, PROMPT, vocab)]
                theirs = peer.parallel(given, PEER_ANSWER)
                ours = run(engine, given, PEER_ANSWER)
                line = f"  {count:3} at once: {ours:6.2f} tokens/s, theirs {theirs:6.2f}: {ours / theirs:.1f} times"
                print(line, flush=True)
    except PeerError as error:
        print(error)


if __name__ == "__main__":
    main()
