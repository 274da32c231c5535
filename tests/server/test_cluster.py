"""How requests are divided among replicas, without a cluster: the choice, and what becomes of jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hightide.errors import HightideError
from hightide.server.cluster import replica
from hightide.server.cluster.cluster import with_absolute_paths
from hightide.server.cluster.link import ReplicaLink
from hightide.server.cluster.replica_messages import Hello, Load, Message, Status
from hightide.server.cluster.routing import MAX_EXTRA_ANSWERS, TOKENS_PER_ANSWER, Routing
from hightide.server.cluster.runner import ClusterRunner
from hightide.server.job_runner import JobRunner
from hightide.server.jobs import Ended, JobFailed, JobRefused, ModelNotOpened, QueueFull, Token
from hightide.server.messages import Accepted, Cancel, News, NotOpened, Open, Ready, Refused, Submit
from hightide.server.supervisor import WorkerLimits

FACTS = Ready(context=100, vocabulary=50, device="a GPU")


# ---- the choice


def test_a_prompt_goes_to_the_least_loaded_replica() -> None:
    assert Routing().choose([1, 2, 3], {"a": 2, "b": 1, "c": 3}) == "b"


def test_replicas_with_equal_loads_take_turns() -> None:
    routing = Routing()
    loads = dict.fromkeys("abc", 0)
    assert [routing.choose([n], loads) for n in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_a_prompt_goes_where_most_of_it_was_read() -> None:
    routing = Routing()
    short, long = list(range(16)), list(range(48))
    assert routing.choose(short, {"a": 0, "b": 1}) == "a"
    assert routing.choose(long, {"a": 1, "b": 0}) == "b"
    assert routing.choose([*long, 7], {"a": 0, "b": 0, "c": 0}) == "b"
    assert routing.choose([*short, 99], {"a": 0, "b": 0, "c": 0}) in "ab"
    assert routing.choose([1, *long], {"a": 0, "b": 0, "c": 0}) == "c"  # the same tokens in other places


def test_a_prefix_outweighs_a_few_answers_that_are_under_way() -> None:
    prompt = list(range(4 * TOKENS_PER_ANSWER))
    for extra, chosen in ((4, "a"), (5, "b")):
        routing = Routing()
        routing.choose(prompt, {"a": 0})
        assert routing.choose(prompt, {"a": extra, "b": 0}) == chosen


def test_no_prefix_outweighs_many() -> None:
    prompt = list(range(10 * MAX_EXTRA_ANSWERS * TOKENS_PER_ANSWER))
    for extra, chosen in ((MAX_EXTRA_ANSWERS, "a"), (MAX_EXTRA_ANSWERS + 1, "b")):
        routing = Routing()
        routing.choose(prompt, {"a": 0})
        assert routing.choose(prompt, {"a": extra, "b": 0}) == chosen


def test_what_was_read_long_ago_is_forgotten() -> None:
    routing = Routing(max_pages=4)
    first, second = list(range(48)), list(range(100, 148))
    routing.choose(first, {"a": 0})
    routing.choose(second, {"a": 0})
    assert routing.choose(first[:16], {"a": 0, "b": 0}) == "a"  # the beginning is kept longest
    assert routing.choose([*first[:16], *range(500, 532)], {"b": 0}) == "b"
    assert routing.choose(second, {"a": 0, "b": 0}) == "a"
    assert sum(len(pages) for pages in routing._pages.values()) <= 8


def test_a_replica_that_is_gone_has_read_nothing() -> None:
    routing = Routing()
    prompt = list(range(32))
    routing.choose(prompt, {"a": 0})
    routing.forget("a")
    assert routing.choose(prompt, {"a": 0, "b": 0}) == "b"  # its turn


def test_what_was_read_with_other_adapters_is_of_no_use() -> None:
    routing, prompt, idle = Routing(), list(range(64)), {"a": 0, "b": 0}
    assert routing.choose(prompt, idle) == "a"
    assert routing.choose(prompt, {"a": 0, "b": 0}, b"style") == "b"  # its turn
    assert routing.choose(prompt, idle, b"style") == "b"
    assert routing.choose(prompt, idle) == "a"


# ---- the command


def test_replicas_need_a_cluster(hightide: Any) -> None:
    assert hightide("serve", "--replicas", 2) == (1, "", "hightide: --replicas needs --ray\n")


def test_replicas_find_files_in_their_own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"draft": "d.gguf", "adapters": {"style": "s"}, "merge": {"m": 0.5}, "context": 8}
    here = {"draft": f"{tmp_path}/d.gguf", "adapters": {"style": f"{tmp_path}/s"}, "merge": {f"{tmp_path}/m": 0.5}}
    assert with_absolute_paths(options) == options | here
    assert with_absolute_paths({"context": 8}) == {"context": 8}


def test_a_cluster_needs_ray(hightide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert hightide("serve", "--ray") == (1, "", "hightide: --ray needs ray: pip install 'hightide[ray]'\n")


# ---- jobs


class Replicas:
    """Two replicas that the test plays, and a model on them."""

    def __init__(self, everywhere: bool = True, max_jobs: int = 10) -> None:
        self.log: list[str] = []
        self.runner = ClusterRunner("m", self.log.append)
        self.links = [ReplicaLink(name, _Handle(), *(_ignore,) * 3, self.log.append) for name in "ab"]
        self.runner.use(self.links, max_jobs, everywhere)
        for link in self.links:
            link.connected, link.machine = True, f"machine-{link.name}"
            self.runner.came(link)

    def sent(self, n: int) -> list[Message]:
        """What a replica was told since the last call."""
        outbox = self.links[n]._outbox
        return [outbox.get_nowait()[1] for _ in range(outbox.qsize())]

    def say(self, n: int, message: Message) -> None:
        self.runner.hear(self.links[n], message)

    def lose(self, n: int) -> None:
        self.links[n].connected = False
        self.runner.lost(self.links[n])

    def come_back(self, n: int) -> None:
        self.links[n].connected = True
        self.runner.came(self.links[n])

    def submit(self, prompt: list[int], seeds: list[int] | None = None) -> tuple[Any, list[Any]]:
        told: list[Any] = []
        return self.runner.submit(prompt, {"max_tokens": 9}, seeds or [1], None, told.append), told


class _Handle:
    def options(self, **_: Any) -> _Handle:
        return self


def _ignore(*_: Any) -> None:
    pass


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_a_job_goes_on_elsewhere_behind_what_was_made() -> None:
    replicas = Replicas()
    job, told = replicas.submit([1, 2], seeds=[5, 6])
    assert replicas.sent(0) == [Load(), Submit(0, [1, 2], {"max_tokens": 9}, None, [(0, 5, []), (1, 6, [])])]
    replicas.say(0, Accepted(0))
    replicas.say(0, News(tokens=[(0, 0, 11, None, []), (0, 1, 12, None, []), (0, 0, 13, None, [])]))
    replicas.say(0, News(ended=[(0, 1, "stop", "", 0, "")]))
    replicas.lose(0)
    assert replicas.sent(1) == [Load(), Submit(0, [1, 2], {"max_tokens": 9}, None, [(0, 5, [11, 13])])]
    replicas.say(1, News(tokens=[(0, 0, 14, None, [])], ended=[(0, 0, "stop", "", 0, "")]))
    tokens = [(event.sample, event.id) for event in told if isinstance(event, Token)]
    assert tokens == [(0, 11), (1, 12), (0, 13), (0, 14)]
    assert [event.sample for event in told if isinstance(event, Ended)] == [1, 0]
    assert replicas.links[1].load == 0 and job.error is None and replicas.runner.restarts == 1


@in_loop
async def test_jobs_wait_while_there_is_no_replica() -> None:
    replicas = Replicas()
    replicas.lose(0)
    replicas.lose(1)
    replicas.sent(1)
    _, told = replicas.submit([1])
    assert replicas.runner.held == 1 and replicas.runner.starting and not replicas.runner.loaded
    replicas.come_back(1)
    assert replicas.runner.held == 0 and isinstance(replicas.sent(1)[-1], Submit) and not told


@in_loop
async def test_three_deaths_end_a_job() -> None:
    replicas = Replicas()
    _, told = replicas.submit([1])
    for n in (0, 1, 0):
        replicas.lose(n)
        replicas.come_back(n)
        assert bool(told) == (replicas.runner.restarts == 3)
    assert isinstance(told[0], JobFailed) and "ended 3 times" in str(told[0])


@in_loop
async def test_errors_of_the_engine_are_no_deaths() -> None:
    replicas = Replicas()
    _, refused = replicas.submit([1])
    _, failed = replicas.submit([2])
    replicas.say(0, Refused(0, "no such token"))
    replicas.say(1, News(ended=[(1, 0, "error", "NaN in layer 3", 0, "")]))
    assert isinstance(refused[0], JobRefused) and str(failed[0]) == "NaN in layer 3"
    assert replicas.runner.restarts == 0 and not replicas.runner._jobs


@in_loop
async def test_a_job_is_cancelled_at_its_replica() -> None:
    replicas = Replicas()
    jobs = [replicas.submit([n])[0] for n in range(2)]
    replicas.runner.cancel(jobs[1])
    assert replicas.sent(0)[-1] != Cancel(1) and replicas.sent(1)[-1] == Cancel(1)
    assert [link.load for link in replicas.links] == [1, 0]


@in_loop
async def test_a_replica_that_cannot_open_the_model_gives_its_jobs_to_others() -> None:
    replicas = Replicas()
    _, told = replicas.submit([1])
    replicas.say(0, NotOpened("the disk is on fire"))
    assert isinstance(replicas.sent(1)[-1], Submit) and not told
    assert replicas.log == ["replica a on machine-a cannot open the model: the disk is on fire"]
    replicas.say(1, NotOpened("so is this one"))
    assert isinstance(told[0], ModelNotOpened)
    replicas.submit([1])  # the next request tries again
    assert isinstance(replicas.sent(0)[-1], Submit) or isinstance(replicas.sent(1)[-1], Submit)


@in_loop
async def test_the_model_is_loaded_where_it_is_asked_for() -> None:
    replicas = Replicas(everywhere=False)
    asking = asyncio.ensure_future(replicas.runner.ready())
    await asyncio.sleep(0)
    assert [replicas.sent(0), replicas.sent(1)] == [[Load()], []] and replicas.runner.starting
    replicas.say(0, NotOpened("there is no such file"))
    assert [replicas.sent(0), replicas.sent(1)] == [[], [Load()]]
    replicas.say(1, Status(loaded=True))
    replicas.say(1, FACTS)
    assert await asking == FACTS == await replicas.runner.ready()
    assert replicas.runner.loaded and not replicas.runner.starting


@in_loop
async def test_a_replica_is_asked_to_load_once_and_heard_once() -> None:
    replicas = Replicas(everywhere=False)
    for n in range(2):
        replicas.lose(n)
    asking = asyncio.ensure_future(replicas.runner.ready())
    await asyncio.sleep(0)
    for n in range(2):
        replicas.links[n]._outbox = asyncio.Queue()
        replicas.come_back(n)
    assert [replicas.sent(0), replicas.sent(1)] == [[Load()], []]
    replicas.say(0, NotOpened("no"))
    assert [replicas.sent(0), replicas.sent(1)] == [[], [Load()]]
    for _ in range(3):
        replicas.say(1, NotOpened("no"))
    with pytest.raises(HightideError, match="no"):
        await asking
    assert replicas.log == [f"replica {name} on machine-{name} cannot open the model: no" for name in "ab"]
    assert len(replicas.runner._able()) == 2  # the next request tries both again


@in_loop
async def test_a_model_that_no_replica_can_open() -> None:
    replicas = Replicas()
    asking = asyncio.ensure_future(replicas.runner.ready())
    await asyncio.sleep(0)
    replicas.say(0, NotOpened("there is no such file"))
    assert not asking.done()
    replicas.say(1, NotOpened("there is no such file"))
    with pytest.raises(HightideError, match="no such file"):
        await asking


class _Engine(JobRunner):
    """What a replica has of a model, played by the test."""

    loaded, starting, stats = True, False, MappingProxyType({})

    def __init__(self, *_: Any) -> None:
        super().__init__(max_jobs=9)

    async def ready(self) -> Ready:
        return FACTS

    async def close(self) -> None: ...

    def _come(self) -> None: ...

    def _withdraw(self, job: Any) -> None: ...

    def _left(self, job: Any) -> None: ...


@in_loop
async def test_a_replica_tells_that_a_job_was_accepted_before_what_it_makes() -> None:
    """Also if all of it comes at once: the front forgets a job with the end of its answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "own_adapter", dict)
        patch.setattr(replica, "Supervisor", _Engine)
        there = replica.Replica({"m": Open("model.gguf", {})}, 9, WorkerLimits())
    stream = there.listen("front")
    said = [message for _, message in await anext(stream)]
    await there.tell("front", [("m", Submit(7, [1, 2], {}, None, [(0, 1, [])]))])
    engine: Any = there._supervisors["m"]
    for message in (Accepted(0, 2), News(tokens=[(0, 0, 5, 0.0, [])]), News(ended=[(0, 0, "length", "", 0, "")])):
        engine._hear_of_job(message)
    await asyncio.sleep(0.01)
    said += [message for _, message in await anext(stream)]
    assert [type(message) for message in said if not isinstance(message, Hello | Status)] == [Accepted, News, News]
    await stream.aclose()


@in_loop
async def test_who_waits_for_a_job_to_be_accepted_hears_of_its_end() -> None:
    both = Replicas()
    job, told = both.submit([1, 2])
    both.say(0, News(ended=[(job.number, 0, "length", "", 0, "")]))
    await asyncio.wait_for(job.accepted.wait(), 5)
    assert [type(event) for event in told] == [Ended]


@in_loop
async def test_figures_of_all_replicas_are_added() -> None:
    replicas = Replicas()
    assert replicas.runner.stats == {}
    stats = {"running": 2, "waiting": 1, "pages": 10, "pages_used": 5, "page_tokens": 16}
    replicas.say(0, Status(loaded=True, stats=stats, restarts=1))
    replicas.say(1, Status(loaded=True, stats=stats, restarts=2))
    replicas.say(1, Status(loaded=True, stats=stats, restarts=2))
    assert replicas.runner.stats == {"running": 4, "waiting": 2, "pages": 20, "pages_used": 10}
    assert replicas.runner.restarts == 3
    replicas.lose(1)
    assert replicas.runner.stats == {"running": 2, "waiting": 1, "pages": 10, "pages_used": 5}
    assert replicas.runner.restarts == 4


@in_loop
async def test_no_more_jobs_than_there_may_be() -> None:
    replicas = Replicas(max_jobs=2)
    replicas.submit([1], seeds=[1, 2])
    with pytest.raises(QueueFull):
        replicas.submit([1])


@in_loop
async def test_a_replica_with_another_version_is_not_used() -> None:
    replicas = Replicas()
    with pytest.raises(HightideError, match=r"elsewhere has hightide 0\.0\.0; install"):
        replicas.links[0]._greet(Hello("elsewhere", "0.0.0"))
