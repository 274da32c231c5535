"""A replica: the engines on one adapter of one machine. Ray Serve starts it, watches it and starts it again."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import hightide
from hightide.errors import HightideError, error_text
from hightide.server.cluster.replica_messages import Hello, Load, Message, Named, Note, Status
from hightide.server.jobs import Ended, Event, Job, JobRefused, ModelNotOpened, Token
from hightide.server.messages import Accepted, Cancel, News, NotOpened, Open, Refused, Submit
from hightide.server.supervisor import Supervisor, WorkerLimits

STATUS_SECONDS = 1.0
FRONT_SECONDS = 60.0  # without a sign of life of the front, before the replica ends


@dataclass(eq=False)
class _Session:
    """A connection of the front, with the jobs that it has given."""

    id: str
    outbox: asyncio.Queue[Named | None] = field(default_factory=asyncio.Queue)  # None: it is over
    jobs: dict[tuple[str, int], Job] = field(default_factory=dict)  # by model and the front's number
    unaccepted: set[tuple[str, int]] = field(default_factory=set)  # of them: the front was not told yet
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def put(self, model: str, message: Message) -> None:
        self.outbox.put_nowait((model, message))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class Replica:
    """Supervises a worker for each model, as a server on one machine does."""

    def __init__(self, models: Mapping[str, Open], max_jobs: int, limits: WorkerLimits) -> None:
        adapter = own_adapter()
        self._supervisors = {
            name: Supervisor(opening.model, adapter | opening.options, max_jobs, limits, partial(self._note, name))
            for name, opening in models.items()
        }
        self._session: _Session | None = None
        self._heard = time.monotonic()

    # ---- what the front calls

    async def listen(self, session_id: str) -> AsyncIterator[list[Named]]:
        """All that there is to tell, for as long as the front listens. A new connection ends the one before."""
        self._end_session()
        session = self._session = _Session(session_id)
        self._heard = time.monotonic()
        session.put("", Hello(socket.gethostname(), hightide.__version__))
        session.start(self._tell_status(session))
        try:
            while (told := await session.outbox.get()) is not None:
                batch = [told]
                while not session.outbox.empty() and (told := session.outbox.get_nowait()) is not None:
                    batch.append(told)
                yield batch
        finally:
            if self._session is session:
                self._end_session()

    async def tell(self, session_id: str, messages: list[Named]) -> None:
        """What the front asks for, in order; an empty list is a sign of life."""
        session = self._session
        if session is None or session.id != session_id:  # it was over before this came
            return
        self._heard = time.monotonic()
        for model, message in messages:
            if isinstance(message, Submit):
                self._submit(session, model, message)
            elif isinstance(message, Cancel):
                if job := session.jobs.pop((model, message.job), None):
                    self._supervisors[model].cancel(job)
            elif isinstance(message, Load):
                session.start(self._load(session, model))

    async def close(self) -> None:
        """End the workers in good order."""
        self._end_session()
        await asyncio.gather(*(supervisor.close() for supervisor in self._supervisors.values()))

    # ---- what Ray Serve calls

    async def check_health(self) -> None:
        """An error if this replica should be replaced. One that has lost its front ends itself."""
        if time.monotonic() - self._heard > FRONT_SECONDS:
            self._end_session()
            from ray import serve

            application = serve.get_replica_context().app_name
            await asyncio.to_thread(serve.delete, application, _blocking=False)
            return
        supervisors = self._supervisors.values()
        refusal = next((one.refusal for one in supervisors if one.refusal), "")
        if refusal and not any(one.loaded for one in supervisors):
            raise HightideError(refusal)

    # ---- sessions and jobs

    def _note(self, model: str, text: str) -> None:
        if self._session is not None:
            self._session.put(model, Note(text))

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.outbox.put_nowait(None)
        for task in session.tasks:
            task.cancel()
        for (model, _), job in session.jobs.items():
            self._supervisors[model].cancel(job)

    async def _tell_status(self, session: _Session) -> None:
        while True:
            for name in self._supervisors:
                session.put(name, self._status(name))
            await asyncio.sleep(STATUS_SECONDS)

    def _status(self, model: str) -> Status:
        one = self._supervisors[model]
        return Status(one.loaded, one.starting, one.stats, one.restarts)

    async def _load(self, session: _Session, model: str) -> None:
        try:
            facts = await self._supervisors[model].ready()
            session.put(model, self._status(model))
            session.put(model, facts)
        except HightideError as error:
            session.put(model, NotOpened(error_text(error)))

    def _submit(self, session: _Session, model: str, message: Submit) -> None:
        samples = [number for number, _, _ in message.samples]
        supervisor = self._supervisors[model]

        def tell(event: Event | HightideError) -> None:
            self._accept(session, model, message.job, job)
            session.put(model, _as_message(message.job, samples, supervisor, event))
            if isinstance(event, HightideError) or (isinstance(event, Ended) and not job.running):
                session.jobs.pop((model, message.job), None)

        try:
            seeds, made = [seed for _, seed, _ in message.samples], [list(made) for _, _, made in message.samples]
            job = supervisor.submit(message.prompt, message.options, seeds, message.grammar, tell, made)
        except HightideError as error:
            session.put(model, Refused(message.job, error_text(error)))
            return
        session.jobs[model, message.job] = job
        session.unaccepted.add((model, message.job))
        session.start(self._accept_in_time(session, model, message.job, job))

    async def _accept_in_time(self, session: _Session, model: str, number: int, job: Job) -> None:
        await job.accepted.wait()
        self._accept(session, model, number, job)
        session.unaccepted.discard((model, number))

    def _accept(self, session: _Session, model: str, number: int, job: Job) -> None:
        """Tell the front once, before anything that the job makes: with the last of that, the front forgets the job."""
        if (model, number) in session.unaccepted and job.accepted.is_set() and job.error is None:
            session.unaccepted.discard((model, number))
            session.put(model, Accepted(number, job.prompt_tokens))


def own_adapter() -> dict[str, str]:
    """The adapter that Ray has set aside for this replica, as an option of `hightide.Engine`; {} if it has none."""
    import ray

    numbers = [str(number) for number in ray.get_gpu_ids()]
    return {"device": f"gpu:{numbers[0]}"} if numbers and numbers[0].isdecimal() else {}


def _as_message(job: int, samples: list[int], supervisor: Supervisor, event: Event | HightideError) -> Message:
    """What a job tells, as a worker would say it, under the front's numbers."""
    if isinstance(event, Token):
        return News(tokens=[(job, samples[event.sample], event.id, event.logprob, list(event.alternatives))])
    if isinstance(event, Ended):
        return News(ended=[(job, samples[event.sample], event.reason, "", event.reused_tokens, event.vector)])
    if isinstance(event, ModelNotOpened):  # others may do better
        return NotOpened(supervisor.refusal)
    if isinstance(event, JobRefused):
        return Refused(job, error_text(event))
    return News(ended=[(job, samples[0], "error", error_text(event), 0, "")])
