"""Exceptions that a signal's handler raises (Ctrl-C, a timeout) at any point of a call: the next call is right."""

from __future__ import annotations

import faulthandler
import gc
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interruption import interruptions
from schedules import PROGRAMS, steps

import hightide
from hightide.gpu.device import Device

TESTS = Path(__file__).parents[1]
PROMPT = [3, 17, 9, 40, 5, 22, 8, 11, 2, 30, 7]
# One graph with KV caches, one with SymInts, two delegates with kernels on NumPy between them.
NAMES = ("llama_chunks", "symints", "partial")


def some_points(quick: int, slow: int = 1) -> Any:
    """Every `quick`th point of a call; every `slow`th in the slow tests."""
    return pytest.mark.parametrize("step", [quick, pytest.param(slow, marks=pytest.mark.slow)])


def same(got: Any, want: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A call that hangs ends the process and shows where every thread is."""
    faulthandler.dump_traceback_later(600, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@some_points(97)
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_call_harms_no_later_one(name: str, step: int, device: Device) -> None:
    given = [inputs for _, inputs, _ in steps(name)][:3]
    with hightide.load(PROGRAMS / f"{name}.pte").method() as method:
        wanted = [method(*inputs) for inputs in given]
        for point in interruptions(lambda: method(*given[1]), step=step):
            for n in (0, 1, 2):  # another level first: what was left of the interrupted one must not show
                assert same(method(*given[n]), wanted[n]), (point, n)


@some_points(997, 23)
@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}, {"speculate": True}], ids=str)
def test_an_interrupted_answer_harms_no_later_one(options: dict[str, Any], step: int, device: Device) -> None:
    with hightide.LLM(TESTS / "models/llama.gguf", context=48, chunk=5) as llm:
        wanted = llm.generate(PROMPT, max_tokens=4, **options).tokens
        longer = llm.generate([*PROMPT, *wanted], max_tokens=2, **options).tokens

        def turn() -> None:
            llm.generate(PROMPT, max_tokens=4, **options)

        for n, point in enumerate(interruptions(turn, step=step)):
            if n % 2:  # with what the interrupted answer left in the cache, or without
                llm.reset()
            assert llm.generate(PROMPT, max_tokens=4, **options).tokens == wanted, point
            assert llm.generate([*PROMPT, *wanted], max_tokens=2, **options).tokens == longer, point


def test_a_stream_that_is_forgotten_while_a_signal_comes_keeps_nobody_waiting(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread asks next: the thread that was interrupted could take a lock again that it never gave back."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # Python drops what is raised in a destructor
    with hightide.LLM(TESTS / "models/llama.gguf", context=48, chunk=5) as llm, ThreadPoolExecutor(1) as other:
        wanted = llm.generate(PROMPT, max_tokens=4).tokens
        streams: list[Any] = []

        def begin() -> None:
            streams.append(llm.stream(PROMPT, max_tokens=4))
            next(streams[0])

        def forget() -> None:
            streams.clear()
            gc.collect(0)

        begin()
        for point in interruptions(forget):
            streams.clear()
            assert other.submit(llm.generate, PROMPT, max_tokens=4).result(60).tokens == wanted, point
            begin()


@some_points(5)
def test_an_interrupted_request_harms_no_later_one(step: int, device: Device) -> None:
    with hightide.Engine(TESTS / "models/llama.gguf", context=48) as engine, ThreadPoolExecutor(1) as other:

        def answer() -> list[int]:
            return engine.submit(PROMPT, max_tokens=3).result(60).tokens

        wanted = answer()
        for point in interruptions(answer, step=step):
            assert other.submit(answer).result(90) == answer() == wanted, point
        assert engine.stats().waiting == 0


@pytest.mark.slow
def test_an_interrupted_build_harms_no_later_one(device: Device) -> None:
    path, given = PROGRAMS / "llama_chunks.pte", next(steps("llama_chunks"))[1]
    wanted = hightide.load(path).method()(*given)

    def build() -> None:
        hightide.load(path).method()(*given)

    for point in interruptions(build, step=4999):
        assert same(hightide.load(path).method()(*given), wanted), point


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_storm_of_signals(count: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real signals, at whatever moment they come."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # Python drops what is raised in a destructor
    given = [inputs for _, inputs, _ in steps("llama_chunks")][:2]
    chance = np.random.default_rng(5)

    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with hightide.load(PROGRAMS / "llama_chunks.pte").method() as method:
            wanted = [method(*inputs) for inputs in given]
            stopped = 0
            for _ in range(count):
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 4e-3), 2e-3)
                    while True:
                        method(*given[0])
                except TimeoutError:
                    stopped += 1
                while True:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                        break
                    except TimeoutError:
                        pass
                assert same(method(*given[0]), wanted[0]) and same(method(*given[1]), wanted[1])
            assert stopped == count
    finally:
        signal.signal(signal.SIGALRM, before)


def test_no_handler_is_installed(device: Device) -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with hightide.LLM(TESTS / "models/llama.gguf", context=48) as llm:
        for _ in llm.stream(PROMPT, max_tokens=3):
            assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
