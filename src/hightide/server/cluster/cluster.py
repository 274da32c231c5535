"""The cluster: joined or started, replicas deployed on it by Ray Serve, and left as it was."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

from hightide.errors import HightideError, describe, error_text
from hightide.llm.default_model import DEFAULT
from hightide.server.cluster.link import ReplicaLink
from hightide.server.cluster.replica import Replica
from hightide.server.cluster.replica_messages import Message
from hightide.server.cluster.runner import ClusterRunner
from hightide.server.messages import Open
from hightide.server.security import KEY_VARIABLE
from hightide.server.supervisor import WorkerLimits
from hightide.units import counted

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 40.0  # workers save their prefix caches
PATHS = ("tokenizer", "draft", "prefix_cache")  # options of `hightide.Engine` that are paths
_LOGGING = {"log_level": "WARNING", "enable_access_log": False}


def with_absolute_paths(options: dict[str, Any]) -> dict[str, Any]:
    """Options of `hightide.Engine` for processes that run in other folders."""
    given = {option: _absolute(options[option]) for option in PATHS if option in options}
    adapters = {name: _absolute(path) for name, path in options.get("adapters", {}).items()}
    merging = {_absolute(path): weight for path, weight in options.get("merge", {}).items()}
    paths = given | {"adapters": adapters, "merge": merging}
    return options | {option: paths[option] for option in paths if option in options}


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


@dataclass(frozen=True)
class ClusterSettings:
    replicas: int | None  # None: one for each GPU, or for each machine if there are none
    max_sequences: int  # answers that a replica makes at a time
    max_waiting: int  # answers that wait for any of them
    limits: WorkerLimits


class Cluster:
    """While it is entered, the replicas run; `connect` and `close` are for the event loop within."""

    def __init__(self, settings: ClusterSettings, log: Callable[[str], None]) -> None:
        if find_spec("ray") is None:
            raise HightideError("--ray needs ray: pip install 'hightide[ray]'")
        self._settings, self._log = settings, log
        self._models: dict[str, Open] = {}
        self._runners: dict[str, ClusterRunner] = {}
        self._links: list[ReplicaLink] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._applications: list[str] = []
        self._started_ray = self._started_serve = False

    def make_runner(self, name: str, file: str, options: dict[str, Any], log: Callable[[str], None]) -> ClusterRunner:
        """A model that all replicas will have; to be called before the cluster is entered."""
        self._models[name] = Open(file if file == DEFAULT else _absolute(file), with_absolute_paths(options))
        self._runners[name] = ClusterRunner(name, log)
        return self._runners[name]

    # ---- the cluster

    def __enter__(self) -> Cluster:
        try:
            self._join()
            self._deploy()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _join(self) -> None:
        """The cluster that this machine belongs to, or a new one of this machine alone."""
        import ray

        os.environ.pop(KEY_VARIABLE, None)  # it has been read; no process that Ray starts should have it
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # of a cluster that starts here: it is no background work
        address = os.environ.get("RAY_ADDRESS", "")
        if address not in ("", "auto", "local"):
            check_address(address)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            ray.init("auto", **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if address:
                raise HightideError(f"cannot join the cluster at RAY_ADDRESS={address}: {describe(error)}") from None
            self._started_ray = True
            cores = max(os.cpu_count() or 1, self._settings.replicas or 1)
            try:
                ray.init("local", num_cpus=cores, include_dashboard=False, **quiet)
            except Exception as failure:  # Ray raises no other when its processes do not come up in time
                raise HightideError(f"Ray could not be started: {describe(failure)}") from None
        logging.getLogger("ray.serve").setLevel(logging.ERROR)

    def _deploy(self) -> None:
        import ray
        from ray import serve

        settings = self._settings
        resources, machines = ray.cluster_resources(), sum(node["Alive"] for node in ray.nodes())
        on_cpu = all(opening.options.get("device") == "cpu" for opening in self._models.values())
        gpus = 0 if on_cpu else int(resources.get("GPU", 0))
        count = settings.replicas or gpus or machines
        kind = "GPU" if gpus else "CPU"
        room = int(ray.available_resources().get(kind, 0))
        has = f"{counted(machines, 'machine')} and {counted(room, f'free {kind}')}"
        self._log(f"the Ray cluster has {has} for {counted(count, 'replica')}")
        if room < count:
            self._log(f"only {room} of them can start before there are more")

        self._started_serve = not any(actor["namespace"] == "serve" for actor in ray.util.list_named_actors(True))
        serve.start(proxy_location="Disabled", logging_config=_LOGGING)
        max_jobs = count * settings.max_sequences + settings.max_waiting
        models = {
            name: Open(opening.model, opening.options | {"max_waiting": max_jobs})  # one may be left to do it all
            for name, opening in self._models.items()
        }
        deployment = serve.deployment(Replica).options(
            name="Engine",
            num_replicas=1,
            max_ongoing_requests=100,
            ray_actor_options={"num_cpus": 0, "num_gpus": 1} if gpus else {"num_cpus": 1},
            health_check_period_s=5,
            health_check_timeout_s=30,
            graceful_shutdown_wait_loop_s=0.1,
            graceful_shutdown_timeout_s=2,
            logging_config=_LOGGING,
        )
        name = f"hightide-{uuid4().hex[:8]}"  # there may be other servers on this cluster
        self._applications = [f"{name}-{n + 1}" for n in range(count)]
        # An application for each: a handle then is a connection to one replica, and the front chooses among them.
        targets = [
            serve.RunTarget(deployment.bind(models, max_jobs, settings.limits), application, None)
            for application in self._applications
        ]
        handles = serve.run_many(targets, wait_for_applications_running=False)
        self._links = [
            ReplicaLink(str(n + 1), handle, self._hear, self._came, self._lost, self._log)
            for n, handle in enumerate(handles)
        ]
        for runner in self._runners.values():
            runner.use(self._links, max_jobs, everywhere=len(self._runners) == 1)

    def _leave(self) -> None:
        import ray
        from ray import serve

        if ray.is_initialized() and not self._started_ray:
            # Ray prints what its own shutdown disturbs; and the cluster's head may have died.
            with suppress(Exception), redirect_stdout(StringIO()):
                with ThreadPoolExecutor(len(self._applications) or 1) as threads:
                    list(threads.map(serve.delete, self._applications))
                if self._started_serve and not serve.status().applications:
                    serve.shutdown()
        ray.shutdown()

    # ---- the replicas

    def connect(self) -> None:
        self._tasks = [asyncio.ensure_future(link.run()) for link in self._links]

    async def close(self) -> None:
        """Let the replicas end their workers in good order."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = [asyncio.ensure_future(link.close()) for link in self._links if link.connected]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_SECONDS)
            for one in late:
                one.cancel()
            await asyncio.gather(*closing, return_exceptions=True)

    def _hear(self, link: ReplicaLink, model: str, message: Message) -> None:
        self._runners[model].hear(link, message)

    def _came(self, link: ReplicaLink) -> None:
        self._log(f"{link} is there")
        for runner in self._runners.values():
            runner.came(link)

    def _lost(self, link: ReplicaLink) -> None:
        for runner in self._runners.values():
            runner.lost(link)


def check_address(address: str) -> None:
    """HightideError if nothing answers there: Ray itself tries for more than a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise HightideError(f"RAY_ADDRESS must be HOST:PORT, not {address!r}; run this on a machine of the cluster")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = error_text(error)
        raise HightideError(f"no Ray cluster answers at RAY_ADDRESS={address}: {reason}") from None
