"""`hightide serve` with 1, 8 and 32 clients: requests per second, and how long a first token takes.

    python benchmarks/server.py [MODEL] [--peers]

A client sends its next request when it has the whole answer to the last one. Prompts are random token ids, so no two
share anything; answers are streamed. `--peers` asks llama.cpp Vulkan the same, beside hightide and in the same run: a
`llama-server` that is found, else `node-llama-cpp` behind a small HTTP server (`compare.py --setup llama.cpp`).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from peerbench.peer import KINDS, Peer, PeerError

from hightide.errors import HightideError
from hightide.formats.gguf import read_gguf
from hightide.llm.default_model import default_model
from hightide.llm.tokenizer import Tokenizer

CLIENTS = (1, 8, 32)
PROMPT, ANSWER = 32, 16  # tokens
REQUESTS = 2  # of each client
PEER_ANSWER, PEER_REQUESTS = 4, 1  # llama.cpp takes up to a second for a token on a software adapter
PATIENCE = 600.0  # seconds without a word: 32 prompts at once take it minutes
CONTEXT = 128
START_SECONDS = 600.0


@dataclass
class Times:
    """Seconds, of one round."""

    all: float = 0.0
    first_tokens: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        firsts = sorted(self.first_tokens)
        most = firsts[round(0.95 * (len(firsts) - 1))]
        rate = len(firsts) / self.all
        return f"{rate:6.3f} requests/s, first token after {statistics.median(firsts):6.2f} s (95 %: {most:.2f} s)"


class Clients:
    def __init__(self, vocabulary: int) -> None:
        self._vocabulary, self._rng = vocabulary, np.random.default_rng(0)

    def ask(self, url: str, clients: int, requests: int, answer: int) -> Times:
        return asyncio.run(self._ask(url, clients, requests, answer))

    async def _ask(self, url: str, clients: int, requests: int, answer: int) -> Times:
        times = Times()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as http:
            start = time.perf_counter()
            await asyncio.gather(*(self._client(http, times, requests, answer) for _ in range(clients)))
            times.all = time.perf_counter() - start
        return times

    async def _client(self, http: httpx.AsyncClient, times: Times, requests: int, answer: int) -> None:
        for _ in range(requests):
            prompt = self._rng.integers(0, self._vocabulary, PROMPT).tolist()
            body = {"prompt": prompt, "max_tokens": answer, "temperature": 0, "ignore_eos": True, "stream": True}
            start, first = time.perf_counter(), None
            async with http.stream("POST", "/v1/completions", json=body) as reply:
                assert reply.status_code == 200, await reply.aread()
                async for line in reply.aiter_lines():
                    if first is None and line.startswith("data: "):
                        first = time.perf_counter() - start
                assert first is not None and line in ("data: [DONE]", ""), line
            times.first_tokens.append(first)


@contextmanager
def hightide_server(model: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        up = Path(folder) / "up"
        command = [sys.executable, "-m", "hightide", "serve", str(model), "--port", "0", "--ready-file", str(up)]
        options = ["--max-sequences", str(max(CLIENTS)), "--context", str(CONTEXT)]
        with _process([*command, *options]) as process:
            _wait(up.exists, process)
            yield up.read_text().strip()


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """llama.cpp's own server, or one around node-llama-cpp."""
    if (program := shutil.which("llama-server")) is None:
        kind = next(kind for kind in KINDS if kind.name == "llama.cpp Vulkan")
        with Peer(kind, model) as peer:
            yield peer.serve(max(CLIENTS), CONTEXT)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sequences = max(CLIENTS)
    command = [program, "-m", str(model), "--port", str(port), "-ngl", "99"]
    command += ["-np", str(sequences), "-c", str(sequences * CONTEXT)]
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{url}/health").status_code == 200
        except httpx.HTTPError:
            return False

    with _process(command) as process:
        _wait(answers, process)
        yield url


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            raise HightideError(f"{process.args[0]} did not start")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    model = options.model or default_model()
    clients = Clients(Tokenizer.from_gguf(read_gguf(model).metadata).vocab_size)
    with hightide_server(model) as url:
        print(f"{model.name}: {PROMPT} tokens in, {ANSWER} out, {REQUESTS} requests of each client")
        for count in CLIENTS:
            clients.ask(url, count, 1, ANSWER)  # compiles, and meets the levels
            print(f"  {count:3} clients: {clients.ask(url, count, REQUESTS, ANSWER)}", flush=True)
        if options.peers:
            compare(clients, url, model)


def compare(clients: Clients, url: str, model: Path) -> None:
    try:
        with llama_server(model) as other:
            print(f"beside llama.cpp Vulkan: {PROMPT} tokens in, {PEER_ANSWER} out, {PEER_REQUESTS} of each client")
            for count in CLIENTS:
                ours = clients.ask(url, count, PEER_REQUESTS, PEER_ANSWER)
                print(f"  {count:3} clients, hightide:  {ours}", flush=True)
                clients.ask(other, count, 1, 1)  # compiles, for a minute or two
                theirs = clients.ask(other, count, PEER_REQUESTS, PEER_ANSWER)
                print(f"               llama.cpp: {theirs}; {theirs.all / ours.all:.1f} times as long", flush=True)
    except PeerError as error:
        print(error)
    except httpx.TimeoutException:
        print(f"               llama.cpp: no word for {PATIENCE:.0f} s")


if __name__ == "__main__":
    main()
