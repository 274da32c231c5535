"""Cases in processes of their own, each watched: a crash, a hang and too much memory are failures like any other."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzz.mutations import case
from fuzz.targets import run

SECONDS = 20  # one case
MEMORY = 1 << 30  # bytes beyond the worker's own and the file's
BATCH = 2000  # cases of one process: what leaks ends with it
ON_GPU_SECONDS = 60  # one case on an adapter, which may have to compile
FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")  # a forked process has no adapter


@dataclass(frozen=True)
class Failure:
    kind: str
    number: int
    what: str  # "TypeError at ops/contract.py:normalize_dim", "crash: SIGBUS", "hang"
    details: str = ""


Job = tuple[str, int]  # kind, number


def outcome(kind: str, name: str, data: bytes, folder: Path) -> tuple[str, str]:
    """("valid" or "refused", "") or, of a failure, what it is and its traceback."""
    try:
        return run(kind, name, data, folder), ""
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic is no Exception
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/src/hightide/" in frame.filename]
        last = frames[-1] if frames else None
        place = "" if last is None else f" at {last.filename.partition('/src/hightide/')[2]}:{last.name}"
        return f"{type(error).__name__}{place}", "".join(traceback.format_exception(error))


class Pool:
    """Some processes that work through jobs."""

    def __init__(self, processes: int, seed: str) -> None:
        self.processes, self.seed = processes, seed
        self.counts: Counter[str] = Counter()

    def run(self, jobs: Iterable[Job], until: float) -> Iterator[Failure]:
        """The failures, as they come; no new process begins after `until`."""
        waiting = iter(jobs)
        running: dict[Connection, _Worker] = {}
        while True:
            while len(running) < self.processes and time.monotonic() < until:
                batch = [job for _, job in zip(range(BATCH), waiting, strict=False)]
                if not batch:
                    break
                worker = _Worker(batch, self.seed, until)
                running[worker.pipe] = worker
            if not running:
                return
            ready = wait(list(running), timeout=1)
            for worker in list(running.values()):
                if worker.pipe in ready:
                    yield from self._heard(worker, running)
                elif time.monotonic() - worker.heard > worker.seconds:
                    worker.kill()
                    yield from self._ended(worker, running, "hang")

    def _heard(self, worker: _Worker, running: dict[Connection, _Worker]) -> Iterator[Failure]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            code = worker.process.exitcode or 0
            if worker.done < len(worker.jobs) and not worker.stopped:
                yield from self._ended(worker, running, f"crash: {_signal(code)}")
            else:
                del running[worker.pipe]
            return
        worker.heard = time.monotonic()
        if message == "stopped":
            worker.stopped = True
            return
        for what, details in message:
            kind, number = worker.jobs[worker.done]
            worker.done += 1
            self.counts[f"{kind} {what if not details else 'failed'}"] += 1
            if details:
                yield Failure(kind, number, what, details)

    def _ended(self, worker: _Worker, running: dict[Connection, _Worker], what: str) -> Iterator[Failure]:
        """A process that did not come to its end: the case it was at failed, and another goes on behind it."""
        del running[worker.pipe]
        kind, number = worker.jobs[worker.done]
        self.counts[f"{kind} failed"] += 1
        yield Failure(kind, number, what, what)
        rest = worker.jobs[worker.done + 1 :]
        if rest:
            again = _Worker(rest, self.seed, worker.until)
            running[again.pipe] = again


class _Worker:
    def __init__(self, jobs: list[Job], seed: str, until: float) -> None:
        self.jobs, self.until, self.done, self.stopped = jobs, until, 0, False
        self.heard = time.monotonic()
        on_gpu = jobs[0][0] == "gpu"
        self.seconds = ON_GPU_SECONDS if on_gpu else SECONDS
        self.pipe, theirs = FORK.Pipe(duplex=False)
        process = SPAWN.Process if on_gpu else FORK.Process
        self.process: Any = process(target=_work, args=(jobs, seed, until, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _work(jobs: list[Job], seed: str, until: float, pipe: Connection) -> None:
    faulthandler.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # panics print
    if jobs[0][0] != "gpu":  # drivers reserve more than they use
        _limit_memory()
    with tempfile.TemporaryDirectory(prefix="hightide-fuzz-", dir=_memory_folder()) as folder:
        for kind, number in jobs:
            if time.monotonic() > until:
                pipe.send("stopped")
                return
            name, data = case(kind, number, seed)
            before = _peak()
            what, details = outcome(kind, name, data, Path(folder))
            grown = _peak() - before
            if not details and grown > MEMORY + len(data):
                what = details = f"memory: {grown >> 20} MiB"
            pipe.send([(what, details)])


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        own = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + MEMORY, own + MEMORY))


def _memory_folder() -> str | None:
    """Files of a case live for milliseconds."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _signal(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def in_process(kind: str, name: str, data: bytes, seconds: float = SECONDS) -> str:
    """What becomes of a file in a process of its own: "valid", "refused", or what fails."""
    pipe, theirs = FORK.Pipe(duplex=False)

    def work(connection: Any) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        _limit_memory()
        with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
            connection.send(outcome(kind, name, data, Path(folder))[0])

    process = FORK.Process(target=work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        if not pipe.poll(seconds):
            return "hang"
        return str(pipe.recv())
    except EOFError:
        process.join()
        return f"crash: {_signal(process.exitcode or 0)}"
    finally:
        process.kill()
        process.join()
