"""Several threads on one method or model take turns; a forked child is told at once that it has no GPU."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from schedules import PROGRAMS, steps

import hightide
from hightide import HightideError
from hightide.gpu.device import Device

TESTS = Path(__file__).parents[1]
PROMPTS = [[3, 17, 9, 40, 5], [22, 8, 11], [2, 30, 7, 3, 17, 9, 1, 4]]


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*work: Callable[[], None]) -> None:
    """Runs these in threads; the first exception is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(work))

    def call(function: Callable[[], None]) -> None:
        try:
            start.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=[function]) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("where", ["cpu", None], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", ["two_dims", "symints_between"])
def test_calls_of_one_method_take_turns(name: str, where: str | None, device: Device) -> None:
    given = [inputs for _, inputs, _ in steps(name)][:4]
    with hightide.load(PROGRAMS / f"{name}.pte", device=where).method() as method:
        wanted = [method(*inputs) for inputs in given]

        def calls(n: int) -> None:
            for _ in range(10):
                for got, want in zip(method(*given[n]), wanted[n], strict=True):
                    assert np.array_equal(got, want)

        at_once(*(lambda n=n: calls(n) for n in range(len(given))))  # type: ignore[misc]


@pytest.mark.parametrize("where", ["cpu", None], ids=["cpu", "gpu"])
def test_answers_of_one_model_take_turns(where: str | None, device: Device) -> None:
    with hightide.LLM(TESTS / "models/llama.gguf", context=48, chunk=5, device=where) as llm:
        wanted = [llm.generate(prompt, max_tokens=6).tokens for prompt in PROMPTS]

        def answer(n: int) -> None:
            for _ in range(4):
                assert llm.generate(PROMPTS[n], max_tokens=6).tokens == wanted[n]

        at_once(*(lambda n=n: answer(n) for n in range(len(PROMPTS))))  # type: ignore[misc]

        def stream(n: int) -> None:
            """Another thread's stream may close this one, between two pieces."""
            for _ in range(6):
                answer = llm.stream(PROMPTS[n], max_tokens=6)
                tokens = [piece.token for piece in answer]
                assert tokens == wanted[n][: len(tokens)]
                assert answer.finish_reason == "closed" or len(tokens) == 6

        at_once(*(lambda n=n: stream(n) for n in range(len(PROMPTS))))  # type: ignore[misc]
        at_once(lambda: answer(0), llm.reset, lambda: answer(1), llm.reset)


def test_sessions_of_one_device_are_built_and_run_at_once(device: Device) -> None:
    names = ("llama_chunks", "two_dims", "gpt2")
    given = [next(steps(name))[1] for name in names]
    wanted = [hightide.load(PROGRAMS / f"{name}.pte").method()(*g) for name, g in zip(names, given, strict=True)]

    def build(n: int) -> None:
        with hightide.load(PROGRAMS / f"{names[n]}.pte") as program:
            for _ in range(3):
                assert np.array_equal(program.method()(*given[n])[0], wanted[n][0])

    at_once(*(lambda n=n: build(n) for n in range(len(names))))  # type: ignore[misc]


def test_threads_of_asyncio(device: Device) -> None:
    with hightide.LLM(TESTS / "models/llama.gguf", context=48) as llm:
        wanted = [llm.generate(prompt, max_tokens=5).tokens for prompt in PROMPTS]

        async def answers() -> list[list[int]]:
            tasks = [asyncio.to_thread(llm.generate, prompt, max_tokens=5) for prompt in PROMPTS]
            return [answer.tokens for answer in await asyncio.gather(*tasks)]

        got: list[list[int]] = []
        at_once(lambda: got.extend(asyncio.run(answers())))  # in a thread of its own: a browser's tests leave a loop
        assert got == wanted


def test_closing_under_another_thread(device: Device) -> None:
    """It waits for the call that has its turn; the calls after it are refused."""
    given = next(steps("two_dims"))[1]
    for _ in range(5):
        method = hightide.load(PROGRAMS / "two_dims.pte").method()
        wanted = method(*given)[0]
        refused = []

        def calls(method: hightide.Method = method, wanted: np.ndarray = wanted, refused: list[str] = refused) -> None:
            try:
                while True:
                    assert np.array_equal(method(*given)[0], wanted)
            except HightideError as error:
                refused.append(str(error))

        at_once(calls, calls, method.close)
        assert len(refused) == 2 and all("is closed" in message for message in refused)


FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import hightide

path, model = sys.argv[1:]
inputs = [np.zeros((1, 3), np.int64), np.zeros(1, np.int64)]
program = hightide.load(path)
method = program.method()
wanted = method(*inputs)[0]
llm = hightide.LLM(model, context=48)
child = os.fork()
if child == 0:
    problems = []
    answer = lambda: llm.generate([1])
    on_objects = lambda: method(*inputs), method.reset, method.close, program.close, answer, llm.close
    for call in (*on_objects, lambda: hightide.load(path).method(), lambda: hightide.LLM(model)):
        try:
            call()
            problems.append("no error")
        except hightide.HightideError as error:
            if "forked" not in str(error) or "spawn" not in str(error):
                problems.append(str(error))
    del method, program, llm  # nothing is released here, and nothing waits
    alone = hightide.load(path, device="cpu").method()(*inputs)[0]
    if not np.allclose(alone, wanted, atol=1e-4):
        problems.append("the references differ")
    print(problems, flush=True)
    os._exit(len(problems))
_, status = os.waitpid(child, 0)
assert np.array_equal(method(*inputs)[0], wanted)
sys.exit(status != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_gets_an_error_at_once(device: Device) -> None:
    command = [sys.executable, "-c", FORKED, str(PROGRAMS / "llama_chunks.pte"), str(TESTS / "models/llama.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
