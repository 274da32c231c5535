"""A server as a process of its own, as users have it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

START_SECONDS = 120.0


@dataclass(frozen=True)
class Running:
    url: str
    process: subprocess.Popen[bytes]
    log: Path
    http: httpx.Client  # one for all requests: each makes a context for TLS, which takes longer than a request

    def client(self, **options: Any) -> openai.OpenAI:
        given = {"api_key": "none", "max_retries": 0, "http_client": self.http} | options
        return openai.OpenAI(base_url=f"{self.url}/v1", **given)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.post(self.url + path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(self.url + path, **options)

    def workers(self) -> list[int]:
        """The process ids of its workers."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if parent == self.process.pid and b"hightide.server.worker" in command:
                found.append(int(folder.name))
        return found


@contextmanager
def running(folder: Path, *arguments: object, **variables: str) -> Iterator[Running]:
    """`hightide serve` with these arguments, on a free port."""
    up, log = folder / "up", folder / "log"
    command = [sys.executable, "-m", "hightide", "serve", "--port", "0", "--ready-file", str(up), *map(str, arguments)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env=os.environ | variables)
    try:
        wait_until(lambda: up.exists() or process.poll() is not None, START_SECONDS)
        assert process.poll() is None, log.read_text()
        with httpx.Client(timeout=60) as http:
            yield Running(up.read_text().strip(), process, log, http)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        sys.stderr.write(log.read_text()[-4000:])


def wait_until(true: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
