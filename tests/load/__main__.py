"""Clients that ask, leave in the middle, read slowly and send nonsense, while the server's worker is killed.

Every answer is compared with the one that the same request got alone at the start; memory is watched. What is wrong
ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import httpx
from running_server import Running, running
from scripted_models import letters_tokenizer

LLAMA = Path(__file__).parents[1] / "models" / "llama.gguf"
SERVER = ("--context", 250, "--max-sequences", 16, "--chunk", 64, "--max-body", "64KiB", "--reproducible")
SECONDS = 180  # that a request may take
GROWTH = 32 << 20  # bytes that the server's own process may grow by in the second half of the run
GIVEN_UP = "ended 3 times while it made this answer"
WEIGHTS = {"ask": 10, "leave": 4, "read_slowly": 2, "send_nonsense": 3}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]}
NONSENSE: tuple[tuple[bytes, tuple[int, ...]], ...] = (  # bodies, and how they may be answered
    (b"", (400,)),
    (b"{", (400,)),
    (b"[1, 2]", (400,)),
    (b"\xff\xfe", (400,)),
    (b"[" * 20_000, (400,)),
    (b'{"prompt": 1e999, "model": "llama"}', (400,)),
    (b'{"prompt": "x", "model": "nobody"}', (404,)),
    (b'{"prompt": "x", "max_tokens": -1}', (400,)),
    (b'{"prompt": "x", "temperature": "hot"}', (400,)),
    (b'{"prompt": "x", "no_such_thing": 1}', (400,)),
    (b'{"prompt": "x", "guided_regex": "("}', (400,)),
    (b'{"prompt": "' + b"x" * 400 + b'"}', (400,)),
    (b'{"prompt": "' + b"x" * 70_000 + b'"}', (413,)),
)


class GivenUp(Exception):
    """An answer that three workers did not live to make."""


class Load:
    """The clients of one server."""

    def __init__(self, server: Running, seed: int) -> None:
        self.server, self.chance = server, random.Random(seed)
        self.http = httpx.AsyncClient(base_url=server.url, timeout=SECONDS, limits=httpx.Limits(max_connections=None))
        self.counts: Counter[str] = Counter()
        self.requests = [
            {"model": "llama", "prompt": prompt, "max_tokens": length, "n": n, "seed": 7} | options
            for (prompt, length), n, options in product(
                (("A", 8), ("Once upon a time", 40), ("The sky is " * 9, 100)),
                (1, 3),
                (
                    {"temperature": 0, "ignore_eos": True},
                    {"temperature": 1, "logprobs": 2},
                    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
                ),
            )
        ]
        self.wanted: list[list[str]] = []

    async def ask_alone(self) -> None:
        for request in self.requests:
            self.wanted.append(await self.whole(request))

    # ---- what a client does

    async def whole(self, request: dict[str, Any]) -> list[str]:
        reply = await self.http.post("/v1/completions", json=request)
        if reply.status_code == 500 and GIVEN_UP in reply.text:
            raise GivenUp
        assert reply.status_code == 200, (reply.status_code, reply.text, request)
        return [choice["text"] for choice in reply.json()["choices"]]

    async def pieces(self, request: dict[str, Any], events: float, pause: float) -> list[str]:
        """What the first so many events of a stream say, with a pause before each."""
        texts = [""] * request["n"]
        async with self.http.stream("POST", "/v1/completions", json=request | {"stream": True}) as reply:
            assert reply.status_code == 200, (reply.status_code, request)
            seen, done = 0, False
            async for line in reply.aiter_lines():
                if not line.startswith("data: "):
                    continue
                if done := line == "data: [DONE]":
                    break
                event = json.loads(line[6:])
                if GIVEN_UP in line:
                    raise GivenUp
                assert "error" not in event, (event, request)
                for choice in event["choices"]:
                    texts[choice["index"]] += choice["text"]
                if (seen := seen + 1) >= events:
                    break
                if pause:
                    await asyncio.sleep(pause)
            assert done or seen >= events, f"a stream ended early: {texts}, {request}"
        return texts

    async def ask(self) -> None:
        n = self.chance.randrange(len(self.requests))
        streamed = self.chance.random() < 0.5
        got = await (self.pieces(self.requests[n], float("inf"), 0) if streamed else self.whole(self.requests[n]))
        assert got == self.wanted[n], f"{self.requests[n]} got {got}, not {self.wanted[n]}"

    async def read_slowly(self) -> None:
        n = self.chance.randrange(len(self.requests))
        got = await self.pieces(self.requests[n], float("inf"), self.chance.uniform(0, 0.2))
        assert got == self.wanted[n], f"{self.requests[n]} got {got}, not {self.wanted[n]}"

    async def leave(self) -> None:
        """In the middle of a stream, or without a word while the answer is made."""
        n = self.chance.randrange(len(self.requests))
        if self.chance.random() < 0.5:
            got = await self.pieces(self.requests[n], self.chance.randrange(1, 30), 0)
            assert all(map(str.startswith, self.wanted[n], got)), f"{self.requests[n]} got {got}"
        else:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.whole(self.requests[n]), self.chance.uniform(0.01, 2))

    async def send_nonsense(self) -> None:
        if self.chance.random() < 0.3:
            await self.send_half()
            return
        body, statuses = self.chance.choice(NONSENSE)
        reply = await self.http.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code in statuses, (reply.status_code, reply.text, body[:80])
        assert reply.json()["error"]["message"]

    async def send_half(self) -> None:
        """A request that is no HTTP, or stops before its end; then the connection is closed."""
        url = httpx.URL(self.server.url)
        _, writer = await asyncio.open_connection(url.host, url.port)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        writer.write(self.chance.choice((b"\x16\x03\x01\x02\x00", b"GET", head, head + b'{"prompt": ')))
        await writer.drain()
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        writer.close()

    async def client(self, until: float) -> None:
        while time.monotonic() < until:
            name = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            action: Callable[[], Awaitable[None]] = getattr(self, name)
            killed = self.counts["killed workers"]
            try:
                await asyncio.wait_for(action(), SECONDS)
            except GivenUp:
                assert self.counts["killed workers"] - killed >= 3, "an answer was given up too early"
                name = "given up"
            self.counts[name] += 1

    # ---- what is done to the server, and watched

    async def kill(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            for worker in self.server.workers():
                os.kill(worker, self.chance.choice((signal.SIGKILL, signal.SIGABRT)))
                self.counts["killed workers"] += 1

    async def watch(self, seconds: float) -> None:
        begin, settled = time.monotonic(), 0
        while True:
            await asyncio.sleep(min(20.0, seconds / 4))
            size, done = resident(self.server.process.pid), (time.monotonic() - begin) / seconds
            print(f"{time.monotonic() - begin:.0f} s, {size >> 20} MiB, {dict(self.counts)}", flush=True)
            if not settled and done >= 0.5:
                settled = size
            assert not settled or size < settled + GROWTH, f"grew from {settled >> 20} to {size >> 20} MiB"

    async def run(self, clients: int, seconds: float, kill_every: float) -> None:
        await self.ask_alone()
        until = time.monotonic() + seconds
        beside = [asyncio.ensure_future(self.kill(kill_every)), asyncio.ensure_future(self.watch(seconds))]
        everyone = asyncio.gather(*(self.client(until) for _ in range(clients)))
        await asyncio.wait([everyone, *beside], return_when=asyncio.FIRST_COMPLETED)
        for task in beside:
            if task.done():
                task.result()
            task.cancel()
        await everyone
        await self.come_to_rest()
        await self.http.aclose()

    async def come_to_rest(self) -> None:
        """Nothing is left of those who went away."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            metrics = (await self.http.get("/metrics")).text.splitlines()
            busy = [line for line in metrics if line.startswith(("hightide:num_requests_r", "hightide:num_requests_w"))]
            if busy and all(line.endswith(" 0.0") for line in busy):
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"requests are left: {busy}")


def resident(process: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--kill-every", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--device", help="cpu, or an adapter by index or name")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = letters_tokenizer(folder / "tokenizer.json")
        device = () if options.device is None else ("--device", options.device)
        with running(folder, LLAMA, "--tokenizer", tokenizer, *device, *SERVER) as server:
            load = Load(server, options.seed)
            asyncio.run(load.run(options.clients, options.minutes * 60, options.kill_every))
            assert server.process.poll() is None
            for bad in ("Traceback", "mistake"):
                assert bad not in server.log.read_text(), f"see {bad} in the server's log"
    print(f"all right: {sum(load.counts.values())} actions of {options.clients} clients, {dict(load.counts)}")


if __name__ == "__main__":
    main()
