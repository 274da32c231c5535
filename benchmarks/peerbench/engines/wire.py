"""What the peers written in Python share: orders come in and answers go out as JSON lines.

    <- {"ready": {"device": ..., "version": ...}, "load": {"cpu_ms": ..., "wall_ms": ...}}
    -> {"do": "prefill", "tokens": [...]}               <- {"samples": [{"cpu_ms", "wall_ms"}], "ids": [next]}
    -> {"do": "decode", "count": 8}                     <- one sample and id a token, from where the last prefill ended
    -> {"do": "matmul", "rows": 1, "count": 5}          <- one sample a run
    -> {"do": "serve", "sequences": 8, "context": 128}  <- {"port": ...}
    -> {"do": "quit"}                                   or {"error": "one sentence"} instead of any answer

A peer runs in an environment of its own and imports nothing of hightide. CPU time is that of all threads of
the process, so it holds a software adapter's work too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Stopwatch:
    """Samples of a process's CPU time and of the wall's."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []

    def __enter__(self) -> Stopwatch:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        self.samples.append({"cpu_ms": cpu * 1e3, "wall_ms": wall * 1e3})


class Sequential:
    """A model that reads a prompt, then decodes from where it ended; `step` gives the next id, and keeps it."""

    position: int
    next: int

    def step(self, tokens: list[int]) -> int:
        raise NotImplementedError

    def prefill(self, watch: Stopwatch, tokens: list[int]) -> list[int]:
        self.position = 0
        with watch:
            chosen = self.step(tokens)
        return [chosen]

    def decode(self, watch: Stopwatch, count: int) -> list[int]:
        ids = []
        for _ in range(count):
            with watch:
                ids.append(self.step([self.next]))
        return ids


def serve(open_peer: Callable[[], tuple[Any, dict[str, Any]]]) -> None:
    """Open the peer, then do what is asked for until the end of the orders."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        load = Stopwatch()
        with load:
            peer, about = open_peer()
        say({"ready": about, "load": load.samples[0]})
        for line in sys.stdin:
            order = json.loads(line)
            what = order.pop("do")
            if what == "quit":
                break
            if not hasattr(peer, what):
                say({"error": f"this peer has no {what}"})
                continue
            watch = Stopwatch()
            ids = getattr(peer, what)(watch, **order)
            say({"samples": watch.samples, "ids": ids or []})
    except Exception as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        say({"error": said[0][:300]})
        raise
