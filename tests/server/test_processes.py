"""What happens to requests when processes die, hang or are told to end, and when clients go away."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from running_server import Running, running, wait_until
from scripted_models import letters_tokenizer, scripted_model

from hightide.errors import HightideError
from hightide.server.jobs import Ended, JobFailed, Token
from hightide.server.supervisor import Supervisor, WorkerLimits

LLAMA = Path(__file__).parents[1] / "models" / "llama.gguf"
SCRIPTS = {"long": ["la ", "li ~"], "hello": ["Hello", "!"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A random model, whose every token depends on all tokens before it."""
    folder = tmp_path_factory.mktemp("processes")
    tokenizer = letters_tokenizer(folder / "tokenizer.json")
    options = ("--tokenizer", tokenizer, "--device", "cpu", "--context", 250, "--max-sequences", 4, "--chunk", 32)
    with running(folder, LLAMA, *options) as server:
        yield server


def complete(client: openai.OpenAI, prompt: str, **options: Any) -> Any:
    more = {"max_tokens": 100, "temperature": 0, "extra_body": {"ignore_eos": True}} | options
    return client.completions.create(model="llama", prompt=prompt, **more)


def running_requests(server: Running) -> float:
    lines = server.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("hightide:num_requests_running{"))


def test_a_worker_that_is_killed_costs_a_pause(server: Running) -> None:
    client = server.client()
    prompts = ["The sky", "Once upon a time", "A", "zzz"]
    options: list[Any] = [{"temperature": n % 2, "seed": n, "max_tokens": 220} for n in range(len(prompts))]
    alone = [complete(client, prompts[n], **options[n]).choices[0].text for n in range(len(prompts))]
    texts = [""] * len(prompts)
    begun = threading.Barrier(len(prompts) + 1, timeout=60)

    def read(n: int) -> None:
        for count, chunk in enumerate(complete(client, prompts[n], stream=True, **options[n])):
            if count == 5:
                begun.wait()
            texts[n] += chunk.choices[0].text

    threads = [threading.Thread(target=read, args=(n,)) for n in range(len(prompts))]
    for thread in threads:
        thread.start()
    begun.wait()
    (worker,) = server.workers()
    os.kill(worker, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    assert texts == alone
    assert server.workers() != [worker]
    wait_until(lambda: "the worker ended (signal 9); starting another one" in server.log.read_text())


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_own_request_only(server: Running, stream: bool) -> None:
    client, gone = server.client(), server.log.read_text().count("disconnected")
    # 64 answers, four at a time: far more than can be made before the client leaves.
    body = {"model": "llama", "prompt": "x", "max_tokens": 240, "ignore_eos": True, "n": 64, "stream": stream}
    other = complete(client, "other", stream=True, max_tokens=100)
    first = next(other)
    try:
        with httpx.stream(
            "POST", f"{server.url}/v1/completions", json=body, timeout=httpx.Timeout(60, read=0.2)
        ) as reply:
            for _ in reply.iter_lines():
                break
    except httpx.ReadTimeout:
        assert not stream
    text = first.choices[0].text + "".join(chunk.choices[0].text for chunk in other)
    assert len(text) >= 100
    wait_until(lambda: running_requests(server) == 0)
    wait_until(lambda: server.log.read_text().count("disconnected") == gone + 1)
    assert complete(client, "x", max_tokens=3).choices[0].finish_reason == "length"


# ---- the supervisor by itself


async def collect(supervisor: Supervisor, prompt: list[int], tokens: int, heard: list[int] | None = None) -> list[int]:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    options = {"max_tokens": tokens, "ignore_eos": True}
    supervisor.submit(prompt, options, [1], None, queue.put_nowait)
    made: list[int] = [] if heard is None else heard
    while not isinstance(event := await queue.get(), Ended):
        if isinstance(event, HightideError):
            raise event
        assert isinstance(event, Token)
        made.append(event.id)
    return made


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


async def hear_more(heard: list[int]) -> None:
    enough = len(heard) + 5
    await until(lambda: len(heard) >= enough)


def supervisor(**limits: Any) -> tuple[Supervisor, list[str]]:
    """A supervisor, and what it logs."""
    log: list[str] = []
    options = {"device": "cpu", "context": 250, "chunk": 16, "max_sequences": 4}
    return Supervisor(str(LLAMA), options, 100, WorkerLimits(**limits), log.append), log


async def kill_worker(supervisor: Supervisor, number: int = signal.SIGKILL) -> None:
    """Signal the worker once it is loaded."""
    await until(lambda: supervisor.loaded)
    worker = supervisor._worker
    assert worker is not None
    worker._process.send_signal(number)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test in an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@pytest.mark.slow
@in_loop
async def test_three_deaths_end_the_request_that_saw_them_and_no_other() -> None:
    one, _ = supervisor()
    first = asyncio.ensure_future(collect(one, [1, 2, 3], 240, heard := []))
    for _ in range(2):
        await hear_more(heard)
        await kill_worker(one)
        await until(lambda: not one.loaded)
    second = asyncio.ensure_future(collect(one, [4, 5], 40))
    await hear_more(heard)
    await kill_worker(one)
    with pytest.raises(JobFailed, match="ended 3 times"):
        await first
    assert len(await second) == 40
    assert one.restarts == 3
    await one.close()


@pytest.mark.slow
@in_loop
async def test_a_worker_that_hangs_is_killed() -> None:
    one, log = supervisor(beat=3.0)
    alone = await collect(one, [1, 2, 3], 200)
    again = asyncio.ensure_future(collect(one, [1, 2, 3], 200, heard := []))
    await hear_more(heard)
    await kill_worker(one, signal.SIGSTOP)
    assert await again == alone
    await until(lambda: bool(log))
    assert "no sign of life for 3 s" in log[0]
    await one.close()


@pytest.mark.slow
@in_loop
async def test_a_worker_that_makes_no_step_is_killed() -> None:
    one, log = supervisor(step=0.05)  # workers tell of their steps once a second
    with pytest.raises(JobFailed, match="ended 3 times"):
        await collect(one, [1, 2, 3], 240)
    assert len(log) == 3 and all("made no step for 0.05 s" in line for line in log)
    await one.close()


@pytest.mark.slow
@in_loop
async def test_a_model_that_nobody_uses_is_unloaded_and_loaded_again() -> None:
    one, log = supervisor(idle=0.5)
    first = await collect(one, [1, 2, 3], 20)
    await until(lambda: not one.loaded)
    assert await collect(one, [1, 2, 3], 20) == first
    assert log == ["unloaded the model: it was not used"] and one.restarts == 0
    await one.close()


@pytest.mark.slow
@in_loop
async def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    broken = Supervisor(str(tmp_path / "none.gguf"), {"device": "cpu"}, 100, WorkerLimits(), lambda _: None)
    for _ in range(2):
        with pytest.raises(HightideError, match="none"):
            await broken.ready()
    await broken.close()


# ---- the end of a server


@pytest.mark.slow
def test_the_worker_ends_with_a_front_that_is_killed(tmp_path: Path) -> None:
    model = scripted_model(tmp_path / "scripted.gguf", SCRIPTS)
    with running(tmp_path, model, "--device", "cpu") as server:
        (worker,) = server.workers()
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not _alive(worker))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_lets_answers_finish(tmp_path: Path, number: int) -> None:
    model = scripted_model(tmp_path / "scripted.gguf", SCRIPTS, context=400)
    with running(tmp_path, model, "--device", "cpu") as server:
        (worker,) = server.workers()
        messages: Any = [{"role": "user", "content": "<|long|>"}]
        stream = server.client().chat.completions.create(model="scripted", messages=messages, stream=True)
        next(stream)
        server.process.send_signal(number)
        *_, last = stream
        assert last.choices[0].finish_reason == "length"
        assert server.process.wait(30) == 0
        assert not _alive(worker) and not (tmp_path / "up").exists()


@pytest.mark.slow
def test_an_answer_that_takes_too_long_at_the_end_gets_an_error(tmp_path: Path) -> None:
    tokenizer = letters_tokenizer(tmp_path / "tokenizer.json")
    options = ("--tokenizer", tokenizer, "--device", "cpu", "--context", 250, "--shutdown-timeout", "100ms")
    with running(tmp_path, LLAMA, *options) as server:
        body = {"model": "llama", "prompt": "x", "max_tokens": 240, "ignore_eos": True, "n": 64, "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as reply:
            lines = reply.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            events = [line.removeprefix("data: ") for line in lines if line]
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["error"]["message"] == "the server was shut down"
        assert server.process.wait(30) == 0


@pytest.mark.slow
def test_several_models_are_loaded_on_demand(tmp_path: Path) -> None:
    one = scripted_model(tmp_path / "one.gguf", {"hello": ["one"]})
    two = scripted_model(tmp_path / "two.gguf", {"hello": ["two"]})
    with running(
        tmp_path, "--model", f"a={one}", "--model", f"b={two}", "--device", "cpu", "--idle-unload", "1s"
    ) as server:
        assert server.workers() == []
        client = server.client()
        for name, text in (("a", "one"), ("b", "two"), ("a", "one")):
            messages: Any = [{"role": "user", "content": "<|hello|>"}]
            reply = client.chat.completions.create(model=name, messages=messages)
            assert reply.choices[0].message.content == text
        wait_until(lambda: server.workers() == [])
        wait_until(lambda: server.get("/ready").status_code == 200)  # its process ends before it has said so
        with pytest.raises(openai.BadRequestError, match="model"):
            client.post("/completions", cast_to=object, body={"prompt": "x"})


@pytest.mark.slow
def test_an_answer_may_take_so_long(tmp_path: Path) -> None:
    tokenizer = letters_tokenizer(tmp_path / "tokenizer.json")
    options = ("--tokenizer", tokenizer, "--device", "cpu", "--context", 250, "--max-sequences", 4, "--timeout", "1s")
    with running(tmp_path, LLAMA, *options) as server:
        body = {"model": "llama", "prompt": "x", "max_tokens": 240, "ignore_eos": True}
        assert server.post("/v1/completions", body | {"n": 64}).status_code == 504
        wait_until(lambda: running_requests(server) == 0)
        assert server.post("/v1/completions", body | {"max_tokens": 1}).status_code == 200


def _alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
