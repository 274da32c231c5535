"""Random live calls, answers, cancels, resets, saved states, new sessions, lost devices, signals and threads.

Every result is compared with what a fresh session gave at the start; memory and GPU objects are watched all along.
The first thing that is wrong ends the run with the seed and the last actions.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import wgpu
from schedules import PROGRAMS, steps

import hightide
from hightide.gpu import device as devices

MODELS = Path(__file__).parents[1] / "models"
STATELESS = ("two_dims", "symints", "symints_between", "value_shape", "partial")
STATEFUL = ("llama_chunks", "llama_fp32")
GGUFS = ("llama.gguf", "qwen3.gguf")
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"temperature": 0.9, "seed": 5}, {"speculate": True}, {"logprobs": 1})
WEIGHTS = {
    "call": 400,
    "sequence": 60,
    "answer": 60,
    "cancel": 20,
    "many": 15,
    "interrupt": 20,
    "threads": 6,
    "state": 6,
    "reset": 10,
    "reopen": 2,
    "lose": 1,
}
HANG = 300  # seconds that an action may take
GROWTH = 64 << 20  # bytes that the process may grow by in the second half of the run
# and for each device that was lost then: wgpu-native cannot free commands that were encoded for it and never submitted,
# and with them what the driver compiled for it: about 150 MiB for all that is open here
LOST = 256 << 20


class Interrupted(Exception):
    """What the handler of a signal raises."""


class Program:
    """A program, with the outputs that its steps gave in a fresh session."""

    def __init__(self, name: str) -> None:
        self.path = PROGRAMS / f"{name}.pte"
        self.given = [inputs for method, inputs, _ in steps(name) if method == "forward"][:5]
        self.open()
        self.wanted = [self.method(*inputs) for inputs in self.given]

    def open(self) -> None:
        self.method = hightide.load(self.path).method()

    def close(self) -> None:
        self.method.close()

    def call(self, n: int) -> None:
        for got, want in zip(self.method(*self.given[n]), self.wanted[n], strict=True):
            assert np.array_equal(got, want), f"{self.path.name}, step {n}"


class Model:
    """A model, with the answers that a fresh session gave."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.path = MODELS / name
        self.open()
        vocabulary = self.llm.decoder.vocab_size
        self.prompts = [[chance.randrange(vocabulary) for _ in range(length)] for length in (1, 4, 11, 17)]
        self.wanted: dict[tuple[int, int], list[int]] = {}
        for n, prompt in enumerate(self.prompts):
            for o, options in enumerate(OPTIONS):
                self.llm.reset()
                self.wanted[n, o] = self.llm.generate(prompt, max_tokens=8, **options).tokens

    def open(self) -> None:
        self.llm = hightide.LLM(self.path, context=48, chunk=6)
        self.engine = hightide.Engine(self.path, context=48, chunk=6, max_sequences=3)

    def close(self) -> None:
        self.llm.close()
        self.engine.close()

    def answer(self, n: int, o: int, pieces: int | None = None) -> None:
        """The whole answer, or its first pieces."""
        stream = self.llm.stream(self.prompts[n], max_tokens=8, **OPTIONS[o])
        tokens = []
        for piece in stream:
            tokens.append(piece.token)
            if len(tokens) == pieces:
                break
        stream.close()
        assert tokens == self.wanted[n, o][: len(tokens)], f"{self.path.name}, prompt {n}, {OPTIONS[o]}: {tokens}"
        assert pieces is not None or stream.finish_reason == "closed" or len(tokens) == len(self.wanted[n, o])


class Soak:
    """One run; an action is a method, chosen by `WEIGHTS`."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.stateless = [Program(name) for name in STATELESS]
        self.stateful = [Program(name) for name in STATEFUL]
        self.models = [Model(name, self.chance) for name in GGUFS]
        self.actions: Counter[str] = Counter()
        self.lately: deque[str] = deque(maxlen=20)
        self.interrupted = self.past_runs = 0

    # ---- actions

    def act(self) -> None:
        name = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.actions[name] += 1
        self.lately.append(name)
        faulthandler.dump_traceback_later(HANG, exit=True)
        getattr(self, name)()
        faulthandler.cancel_dump_traceback_later()

    def call(self) -> None:
        program = self.chance.choice(self.stateless)
        program.call(self.chance.randrange(len(program.given)))

    def sequence(self) -> None:
        program = self.chance.choice(self.stateful)
        program.method.reset()
        for n in range(self.chance.randrange(1, len(program.given) + 1)):
            program.call(n)

    def answer(self) -> None:
        model = self.chance.choice(self.models)
        model.answer(*self.chance.choice(list(model.wanted)))

    def cancel(self) -> None:
        model = self.chance.choice(self.models)
        model.answer(*self.chance.choice(list(model.wanted)), pieces=self.chance.randrange(1, 6))

    def many(self) -> None:
        """Several answers at once, of which some are cancelled."""
        model = self.chance.choice(self.models)
        asked = self.chance.choices(list(model.wanted), k=self.chance.randrange(2, 7))
        requests = [model.engine.submit(model.prompts[n], max_tokens=8, **OPTIONS[o]) for n, o in asked]
        for request in requests:
            if self.chance.random() < 0.2:
                request.cancel()
        for request, key in zip(requests, asked, strict=True):
            tokens = request.result().tokens
            whole = len(tokens) == len(model.wanted[key]) or request.finish_reason == "closed"
            assert whole and tokens == model.wanted[key][: len(tokens)], f"{model.path.name}, {key}: {tokens}"

    def reset(self) -> None:
        self.chance.choice(self.models).llm.reset()

    def state(self) -> None:
        """A conversation saved in the middle, by whatever session, goes on after it was read back."""
        model = self.chance.choice(self.models)
        n, o = self.chance.choice(list(model.wanted))
        model.answer(n, o, pieces=3)
        model.llm.save_state(self.folder / "state")
        model.llm.reset()
        model.llm.load_state(self.folder / "state")
        model.answer(n, o)

    def reopen(self) -> None:
        what = self.chance.choice([*self.stateless, *self.stateful, *self.models])
        self.past_runs += runs(what)
        what.close()
        what.open()

    def lose(self) -> None:
        """The device is lost under everything. What has no state to lose must not notice."""
        for device in list(devices._opened.values()):
            device.wgpu.destroy()
        for program in self.stateful:
            program.method.reset()

    def interrupt(self) -> None:
        """A signal whose handler raises, at some moment of a call or an answer."""
        program, model = self.chance.choice(self.stateless), self.chance.choice(self.models)
        try:
            signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(1e-5, 0.02))
            if self.chance.random() < 0.5:
                program.call(self.chance.randrange(len(program.given)))
            else:
                model.answer(*self.chance.choice(list(model.wanted)))
            time.sleep(0.03)
        except Interrupted:
            self.interrupted += 1

    def threads(self) -> None:
        errors: list[BaseException] = []

        def guarded(action: Callable[[], None]) -> None:
            try:
                action()
            except BaseException as error:
                errors.append(error)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        actions = self.chance.choices((self.call, self.answer, self.cancel), k=4)
        threads = [threading.Thread(target=guarded, args=[action]) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
        if errors:
            raise errors[0]

    # ---- what is watched

    def steps(self) -> int:
        """Runs of graphs so far."""
        return self.past_runs + sum(runs(what) for what in (*self.stateless, *self.stateful, *self.models))

    def objects(self) -> dict[str, int]:
        """GPU objects that are alive, by kind."""
        gc.collect()
        counts = wgpu.diagnostics.object_counts.get_dict()
        return {name: count["count"] for name, count in counts.items() if name != "total"}


def runs(what: Program | Model) -> int:
    if isinstance(what, Program):
        sessions = list(what.method.sessions)
    else:
        sessions = [decoder.session for decoder in (what.llm.decoder, what.engine.decoder)]  # type: ignore[attr-defined]
    return sum(session.counters.runs for session in sessions if hasattr(session, "counters"))


def resident() -> int:
    """Bytes of memory that the process holds, without those that the allocator keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--steps", type=int, default=0, help="end after this many runs of graphs, instead of minutes")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wgpu.logger.setLevel("CRITICAL")  # it tells of every lost device
    sys.unraisablehook = lambda _: None  # what a signal's handler raises in a destructor is dropped by Python

    def ring(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, ring)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(options.seed, Path(folder))
        print(f"seed {options.seed}; {soak.objects()}", flush=True)
        watch(soak, options.minutes * 60, options.steps)


def watch(soak: Soak, seconds: float, wanted: int) -> None:
    begin = told = time.monotonic()
    settled, losses, first_objects = 0, 0, soak.objects()
    while True:
        try:
            soak.act()
        except BaseException:
            print(f"after {soak.steps()} steps; the last actions: {', '.join(soak.lately)}", flush=True)
            raise
        now = time.monotonic()
        done = soak.steps() / wanted if wanted else (now - begin) / seconds
        if not settled and done > 0.5:
            settled, losses = resident(), soak.actions["lose"]
        if now - told > 20 or done >= 1:
            told = now
            size = resident()
            print(f"{soak.steps()} steps in {now - begin:.0f} s, {size >> 20} MiB", flush=True)
            if settled and size > settled + GROWTH + LOST * (soak.actions["lose"] - losses):
                sys.exit(f"the process grew from {settled >> 20} to {size >> 20} MiB: {soak.objects()}")
        if done >= 1:
            break
    left = {name: count for name, count in soak.objects().items() if count > 2 * first_objects.get(name, 0) + 50}
    if left:
        sys.exit(f"GPU objects are left over: {left}; at the start {first_objects}")
    print(f"all right: {soak.steps()} steps, {dict(soak.actions)}, {soak.interrupted} interrupted")
    print(f"GPU objects at the start {first_objects}, at the end {soak.objects()}")


if __name__ == "__main__":
    main()
