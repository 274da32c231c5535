"""One model on all replicas: each job goes to one of them, and to another one if that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from hightide.errors import HightideError
from hightide.llm.page_pool import START
from hightide.server.cluster.link import ReplicaLink
from hightide.server.cluster.replica_messages import Load, Message, Note, Status
from hightide.server.cluster.routing import Routing
from hightide.server.job_runner import JobRunner
from hightide.server.jobs import Job, ModelNotOpened
from hightide.server.messages import Cancel, NotOpened, PackedPrompt, Ready, Submit

SUMMED = ("running", "waiting", "pages", "pages_used")  # of the engines' stats


@dataclass
class _Place:
    """The model on one replica."""

    status: Status = field(default_factory=Status)
    facts: Ready | None = None
    asked: bool = False  # to open the model, and has not answered
    refusal: str = ""  # why the replica cannot open the model
    given: int = 0  # jobs so far


class ClusterRunner(JobRunner):
    """A model that replicas run."""

    def __init__(self, name: str, log: Callable[[str], None]) -> None:
        super().__init__(max_jobs=0)
        self._name, self._log = name, log
        self._places: dict[ReplicaLink, _Place] = {}
        self._routing = Routing()
        self._facts: asyncio.Future[Ready] | None = None
        self._everywhere = False

    def use(self, links: Sequence[ReplicaLink], max_jobs: int, everywhere: bool) -> None:
        """The replicas, and how many samples there may be on all of them; `everywhere`: they load the model at once."""
        self._places = {link: _Place() for link in links}
        self._max_jobs, self._everywhere = max_jobs, everywhere

    # ---- for the server

    @property
    def loaded(self) -> bool:
        return any(link.connected and place.status.loaded for link, place in self._places.items())

    @property
    def starting(self) -> bool:
        if self.loaded:
            return False
        connected = self._connected().values()
        return not connected or self._wanted or any(place.status.starting for place in connected)

    @property
    def stats(self) -> Mapping[str, Any]:
        """Of all engines together."""
        stats = [place.status.stats for place in self._connected().values() if place.status.stats]
        return {name: sum(one[name] for one in stats) for name in SUMMED} if stats else {}

    @property
    def given(self) -> dict[str, int]:
        """How many jobs each replica got so far."""
        return {link.name: place.given for link, place in self._places.items()}

    async def ready(self) -> Ready:
        """The facts of the replica with the smallest context; HightideError if none can open the model."""
        known = [place.facts for place in self._places.values() if place.facts is not None]
        if known:
            return min(known, key=lambda facts: facts.context)
        if self._facts is None or self._facts.done():
            self._facts = asyncio.get_running_loop().create_future()
            self._ask_to_load()
        return await asyncio.shield(self._facts)

    async def close(self) -> None:
        """The replicas are the cluster's to close."""

    # ---- what happens to replicas

    def came(self, link: ReplicaLink) -> None:
        """A replica has connected, for the first time or again."""
        self._places[link] = _Place(given=self._places[link].given)
        if self._everywhere or self._wanted:
            self._ask_to_load()
        self._hand_out()

    def lost(self, link: ReplicaLink) -> None:
        """A replica is gone, and with it what it has read."""
        self.restarts += 1
        self._places[link].status = Status()
        self._routing.forget(link.name)
        self._take_back(link)

    def hear(self, link: ReplicaLink, message: Message) -> None:
        place = self._places[link]
        if isinstance(message, Status):
            self.restarts += max(0, message.restarts - place.status.restarts)
            place.status = message
        elif isinstance(message, Ready):
            place.facts, place.asked, place.refusal = message, False, ""
            if self._facts is not None and not self._facts.done():
                self._facts.set_result(message)
            self._hand_out()
        elif isinstance(message, NotOpened):
            if place.asked or self._jobs_of(link):  # what it says to each of its jobs is heard once
                self._log(f"{link} cannot open the model: {message.reason}")
                place.asked, place.refusal = False, message.reason
                self._give_up_if_all_refuse(message.reason)
                self._take_back(link)
        elif isinstance(message, Note):
            self._log(f"{link}: {message.text}")
        elif not isinstance(message, Load):
            self._hear_of_job(message)  # type: ignore[arg-type]

    def _ask_to_load(self) -> None:
        """Everywhere, or on the least loaded replica that has not refused."""
        able = self._able()
        if not self._everywhere:
            under_way = any(self._places[link].asked for link in able)
            able = [] if under_way or not able else [min(able, key=lambda link: link.load)]
        for link in able:
            place = self._places[link]
            if not place.asked and place.facts is None:
                place.asked = True
                link.tell(self._name, Load())

    def _give_up_if_all_refuse(self, reason: str) -> None:
        """No replica can open the model. The next request tries again."""
        if self._able():
            if self._wanted and not self._everywhere:
                self._ask_to_load()
            return
        for place in self._places.values():
            place.refusal = ""
        if self._facts is not None and not self._facts.done():
            self._facts.set_exception(HightideError(reason))
        for job in list(self._jobs.values()):
            self.end(job, ModelNotOpened("the model cannot be opened"))

    # ---- jobs

    def _come(self) -> None:
        self._hand_out()

    def _hand_out(self) -> None:
        """Give jobs to replicas, if there are any."""
        able = {link.name: link for link in self._able()}
        if not able:
            return
        for job in self._jobs.values():
            if not job.submitted:
                loads = {name: link.load for name, link in able.items()}
                link = able[self._routing.choose(_leading_ids(job.prompt), loads, _start(job.options))]
                job.submitted = True
                link.jobs.add(job)
                self._places[link].given += 1
                samples = [(n, job.seeds[n], job.made[n]) for n in sorted(job.running)]
                link.tell(self._name, Submit(job.number, job.prompt, job.options, job.grammar, samples))

    def _take_back(self, link: ReplicaLink) -> None:
        """The replica does not do its jobs of this model any more: others do."""
        jobs = self._jobs_of(link)
        link.jobs.difference_update(jobs)
        self._mourn(jobs)
        self._hand_out()

    def _jobs_of(self, link: ReplicaLink) -> list[Job]:
        return [job for job in self._jobs.values() if job in link.jobs]

    def _withdraw(self, job: Job) -> None:
        for link in self._places:
            if job in link.jobs:
                link.tell(self._name, Cancel(job.number))

    def _left(self, job: Job) -> None:
        for link in self._places:
            link.jobs.discard(job)

    @property
    def _wanted(self) -> bool:
        """Whether somebody waits for the model to be opened."""
        return self._facts is not None and not self._facts.done()

    def _connected(self) -> dict[ReplicaLink, _Place]:
        return {link: place for link, place in self._places.items() if link.connected}

    def _able(self) -> list[ReplicaLink]:
        return [link for link, place in self._connected().items() if not place.refusal]


def _start(options: Mapping[str, Any]) -> bytes:
    """Tells the adapters of an answer apart: what was read with others is of no use to it."""
    strengths = {name: strength for name, strength in (options.get("adapters") or {}).items() if strength}
    return repr(sorted(strengths.items())).encode() if strengths else START


def _leading_ids(prompt: PackedPrompt) -> list[int]:
    """Up to the first image or audio, which has no ids that all replicas know."""
    return [item for item in takewhile(lambda item: isinstance(item, int), prompt) if isinstance(item, int)]
