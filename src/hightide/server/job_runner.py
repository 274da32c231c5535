"""Who does the jobs of one model: what the server needs of it, and the rules that hold wherever the model runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from hightide.errors import HightideError
from hightide.server.jobs import Ended, Event, Job, JobFailed, JobRefused, QueueFull, Token
from hightide.server.messages import Accepted, Message, News, PackedPrompt, Ready, Refused

MAX_DEATHS = 3  # of processes that had a job under way, before the job is given up


class JobRunner(ABC):
    """Does the jobs of one model. All methods are for the event loop's thread."""

    def __init__(self, max_jobs: int) -> None:
        """At most `max_jobs` samples are running or waiting."""
        self._max_jobs = max_jobs
        self._jobs: dict[int, Job] = {}
        self._numbers = count()
        self.restarts = 0  # of processes that ended unasked

    # ---- for the server

    @property
    @abstractmethod
    def loaded(self) -> bool:
        """Whether requests are taken at once."""

    @property
    @abstractmethod
    def starting(self) -> bool:
        """Whether they will be soon."""

    @property
    @abstractmethod
    def stats(self) -> Mapping[str, Any]:
        """What the engine said last; {} if none runs."""

    @property
    def held(self) -> int:
        """Jobs that wait here for an engine."""
        return sum(not job.submitted for job in self._jobs.values())

    @property
    def given(self) -> Mapping[str, int]:
        """Jobs so far by replica, if there are replicas."""
        return {}

    @abstractmethod
    async def ready(self) -> Ready:
        """The model's facts, once it has been opened; HightideError if it cannot be."""

    @abstractmethod
    async def close(self) -> None:
        """End in good order."""

    def submit(
        self,
        prompt: PackedPrompt,
        options: dict[str, Any],
        seeds: list[int],
        grammar: dict[str, Any] | None,
        tell: Callable[[Event | HightideError], None],
        made: list[list[int]] | None = None,
    ) -> Job:
        """Ask for one answer per seed, and `tell` what comes; QueueFull if too many are asked for already.

        Answers that were begun elsewhere go on behind the tokens that were `made` of each.
        """
        if sum(len(job.running) for job in self._jobs.values()) + len(seeds) > self._max_jobs:
            raise QueueFull("too many requests are waiting; ask again later")
        job = Job(next(self._numbers), prompt, options, grammar, seeds, tell)
        job.made, job.running = made or [[] for _ in seeds], set(range(len(seeds)))
        self._jobs[job.number] = job
        self._come()
        return job

    def cancel(self, job: Job) -> None:
        """End a job, if it has not ended, at the next step."""
        if job.number in self._jobs:
            if job.submitted:
                self._withdraw(job)
            self._drop(job)

    def end(self, job: Job, error: HightideError) -> None:
        """End a job with an error, if it has not ended."""
        if job.number in self._jobs:
            self.cancel(job)
            job.fail(error)

    def end_all(self, reason: str) -> None:
        """End every job with an error."""
        for job in list(self._jobs.values()):
            self.end(job, JobFailed(reason))

    # ---- what differs

    @abstractmethod
    def _come(self) -> None:
        """A job has come."""

    @abstractmethod
    def _withdraw(self, job: Job) -> None:
        """Tell the engine that has a job to end it."""

    @abstractmethod
    def _left(self, job: Job) -> None:
        """A job has left."""

    # ---- what engines tell

    def _hear_of_job(self, message: Message) -> None:
        """What an engine says of its jobs; it may not know yet that one is over."""
        if isinstance(message, News):
            self._deliver(message)
        elif isinstance(message, Accepted):
            if job := self._jobs.get(message.job):
                job.prompt_tokens = message.prompt_tokens
                job.accepted.set()
        elif isinstance(message, Refused) and (job := self._jobs.get(message.job)):
            self._drop(job)
            job.fail(JobFailed(message.reason) if job.accepted.is_set() else JobRefused(message.reason))

    def _deliver(self, news: News) -> None:
        for number, sample, token, logprob, alternatives in news.tokens:
            if job := self._jobs.get(number):
                job.made[sample].append(token)
                job.tell(Token(sample, token, logprob, alternatives))
        for number, sample, reason, error, reused, vector in news.ended:
            if job := self._jobs.get(number):
                job.running.discard(sample)
                if not job.running or error:
                    self._drop(job)
                    job.accepted.set()
                if error:
                    job.fail(JobFailed(error))
                else:
                    job.tell(Ended(sample, reason, reused, vector))

    def _mourn(self, jobs: Iterable[Job]) -> None:
        """Who had these jobs is dead: they are to be done again, unless they have seen too many die."""
        for job in jobs:
            job.submitted = False
            job.deaths += 1
            if job.deaths == MAX_DEATHS:
                self._drop(job)
                job.fail(JobFailed(f"the model's process ended {MAX_DEATHS} times while it made this answer"))

    def _drop(self, job: Job) -> None:
        del self._jobs[job.number]
        self._left(job)
