"""Keeps a worker running for one model: starts it, starts it again when it dies or hangs, and has it go on with the
answers that the one before had begun."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hightide.errors import HightideError, error_text
from hightide.server.job_runner import MAX_DEATHS, JobRunner
from hightide.server.jobs import Job, ModelNotOpened
from hightide.server.messages import Beat, Cancel, Message, NotOpened, Open, Ready, Submit, receive_async
from hightide.server.worker_process import WorkerProcess

MAX_FAILED_STARTS = 3  # in a row


@dataclass(frozen=True)
class WorkerLimits:
    """How long to wait for what, in seconds."""

    beat: float = 60.0  # without a sign of life of the worker
    step: float = 600.0  # without a step, while there is work
    idle: float | None = None  # without work, before the model is unloaded


class Supervisor(JobRunner):
    """A model in a process of its own on this machine."""

    def __init__(
        self, model: str, options: dict[str, Any], max_jobs: int, limits: WorkerLimits, log: Callable[[str], None]
    ) -> None:
        """`options` are those of `hightide.Engine`; at most `max_jobs` samples are running or waiting."""
        super().__init__(max_jobs)
        self._opening = Open(model, options)
        self._limits, self._log = limits, log
        self._worker: WorkerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Ready] | None = None
        self._idle_since = time.monotonic()
        self.refusal = ""  # why the model could not be opened, until that is tried again

    # ---- for the server

    @property
    def loaded(self) -> bool:
        """Whether a worker is there to take requests at once."""
        return self._worker is not None and self._worker.ready

    @property
    def starting(self) -> bool:
        """Whether a worker will be there soon."""
        return self._task is not None and not self._task.done() and not self.loaded

    @property
    def stats(self) -> dict[str, Any]:
        """What the engine said last; {} if none runs."""
        return {} if self._worker is None or self._worker.stats is None else self._worker.stats

    async def ready(self) -> Ready:
        """The model's facts, once it has been opened; HightideError if it cannot be."""
        self._start()
        assert self._ready is not None
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        """End the worker in good order, or by force if it takes too long."""
        task, self._task = self._task, None
        worker, self._worker = self._worker, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if worker is not None:
            if not worker.ready:  # it need not load the model first
                worker.kill("the server ends")
            await worker.close()

    # ---- the worker's life

    def _start(self) -> None:
        if self._task is not None and not self._task.done():
            return
        if self._ready is None or self._ready.done():
            if self._ready is not None and not self._ready.cancelled():
                self._ready.exception()  # it was told, or nobody asked
            self._ready = asyncio.get_running_loop().create_future()
        self._idle_since = time.monotonic()
        self.refusal = ""
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        failed = 0
        while True:
            try:
                worker = self._worker = await WorkerProcess.start(self._opening)
            except OSError as error:
                self._give_up(f"the model's process cannot be started: {error_text(error)}")
                return
            watching = asyncio.ensure_future(self._watch(worker))
            try:
                while (message := await receive_async(worker.answers)) is not None:
                    self._hear(worker, message)
            finally:
                watching.cancel()
            self._worker = None
            ending = await worker.ended()
            if worker.unloaded:
                self._log("unloaded the model: it was not used")
                if not self._jobs:
                    return
                continue
            if worker.refusal:
                self._give_up(worker.refusal)
                return
            failed = 0 if worker.ready else failed + 1
            self._log(f"the worker ended ({worker.killed_for or ending}); starting another one")
            self.restarts += 1
            if failed == MAX_FAILED_STARTS:
                self._give_up("the model's process cannot be started")
                return
            self._mourn([job for job in self._jobs.values() if job.submitted])
            await asyncio.sleep(0.2 * failed)

    def _give_up(self, reason: str) -> None:
        """The model cannot be opened. The next request tries again."""
        self.refusal = reason
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(HightideError(reason))
        for job in list(self._jobs.values()):
            self.end(job, ModelNotOpened("the model cannot be opened"))

    async def _watch(self, worker: WorkerProcess) -> None:
        """Kill a worker that hangs; end one that nobody needs."""
        steps, advanced = -1, time.monotonic()
        while True:
            await asyncio.sleep(min(1.0, self._limits.step / 4, self._limits.beat / 4))
            now = time.monotonic()
            if worker.steps != steps or not any(job.submitted for job in self._jobs.values()):
                steps, advanced = worker.steps, now
            if now - worker.heard > self._limits.beat:
                worker.kill(f"it gave no sign of life for {self._limits.beat:g} s")
            elif worker.ready and now - advanced > self._limits.step:
                worker.kill(f"it made no step for {self._limits.step:g} s")
            elif worker.ready and self._idle_for(worker) > (self._limits.idle or float("inf")):
                worker.unloaded, worker.ready = True, False  # what is asked from now on is for the next one
                await worker.close()

    def _idle_for(self, worker: WorkerProcess) -> float:
        return 0.0 if self._jobs else time.monotonic() - max(self._idle_since, worker.since)

    # ---- jobs

    def _hear(self, worker: WorkerProcess, message: Message) -> None:
        worker.heard = time.monotonic()
        if isinstance(message, Beat):
            worker.stats = message.stats
        elif isinstance(message, NotOpened):
            worker.refusal = message.reason
        elif isinstance(message, Ready):
            worker.ready, worker.since = True, time.monotonic()
            if self._ready is not None and not self._ready.done():
                self._ready.set_result(message)
            self._hand_out()
        else:
            self._hear_of_job(message)

    def _hand_out(self) -> None:
        """Give the worker what it does not have yet.

        A job that two workers did not survive gets the third alone: should that one die too, no other job is harmed.
        """
        if self._worker is None or not self._worker.ready:
            return
        suspects = [job for job in self._jobs.values() if job.deaths == MAX_DEATHS - 1]
        if suspects and any(job.submitted for job in self._jobs.values()):
            return
        for job in suspects[:1] or list(self._jobs.values()):
            if not job.submitted:
                job.submitted = True
                samples = [(n, job.seeds[n], job.made[n]) for n in sorted(job.running)]
                self._tell(Submit(job.number, job.prompt, job.options, job.grammar, samples))

    def _come(self) -> None:
        self._start()
        self._hand_out()

    def _withdraw(self, job: Job) -> None:
        self._tell(Cancel(job.number))

    def _left(self, job: Job) -> None:
        self._idle_since = time.monotonic()
        self._hand_out()

    def _tell(self, message: Message) -> None:
        if self._worker is not None:
            self._worker.tell(message)
