"""A server from its first socket to its end: models are opened, requests answered, signals heeded."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from hightide.errors import HightideError
from hightide.folders import replacing
from hightide.server.app import make_app
from hightide.server.cluster.cluster import Cluster
from hightide.server.job_runner import JobRunner
from hightide.server.logs import Log
from hightide.server.models import ModelSettings, ServedModel, open_served_model
from hightide.server.security import Security
from hightide.server.service import Service
from hightide.server.supervisor import Supervisor, WorkerLimits

BACKLOG = 2048  # connections that may wait to be accepted


@dataclass(frozen=True)
class ServerSettings:
    models: list[ModelSettings]
    security: Security
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any that is free
    ready_file: Path | None = None  # written with the address when the server answers
    max_sequences: int = 16  # answers that a model makes at a time
    max_waiting: int = 1024  # answers that wait for it
    max_body: int = 8 << 20  # bytes of a request
    request_seconds: float = 3600.0  # that an answer may take
    shutdown_seconds: float = 30.0  # that answers get to finish when the server is to end
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    log_json: bool = False
    cluster: Cluster | None = None  # the machines that run the models; None: this one


def serve(settings: ServerSettings) -> None:
    """Until SIGTERM or SIGINT; HightideError if the server cannot start."""
    log = Log(settings.log_json)

    def make_runner(name: str, file: str, options: dict[str, Any]) -> JobRunner:
        def log_named(text: str) -> None:
            log.note(f"{name}: {text}")

        if settings.cluster is not None:
            return settings.cluster.make_runner(name, file, options, log_named)
        most = settings.max_sequences + settings.max_waiting
        return Supervisor(file, options, most, settings.limits, log_named)

    if settings.ready_file is not None:
        settings.ready_file.unlink(missing_ok=True)  # of a server that was killed
    models = {model.name: open_served_model(model, make_runner) for model in settings.models}
    with _listen(settings.host, settings.port) as listener, settings.cluster or nullcontext():
        asyncio.run(_serve(settings, models, listener, log))


async def _serve(settings: ServerSettings, models: dict[str, ServedModel], listener: socket.socket, log: Log) -> None:
    service = Service(models, settings.request_seconds)
    app = make_app(service, settings.security, log, settings.max_body)
    server = _Server(app, service, settings.shutdown_seconds)
    serving = asyncio.ensure_future(server.serve([listener]))
    address = _address(settings.host, listener)
    if settings.cluster is not None:
        settings.cluster.connect()
    try:
        if len(models) == 1:  # several are loaded on demand
            await _load(next(iter(models.values())), serving, log)
        if not serving.done() and not service.draining:
            log.note(f"serving {', '.join(models)} on {address}")
            if settings.ready_file is not None:
                with replacing(settings.ready_file) as file:
                    file.write(f"{address}\n".encode())
        await serving
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        await asyncio.gather(*(model.runner.close() for model in models.values()))
        if settings.cluster is not None:
            await settings.cluster.close()
        if settings.ready_file is not None:
            with suppress(OSError):
                settings.ready_file.unlink()


async def _load(model: ServedModel, serving: asyncio.Future[None], log: Log) -> None:
    """Load a model, unless the server is told to end before that."""
    log.note(f"loading {model.name}")
    loading = asyncio.ensure_future(model.runner.ready())
    both: list[asyncio.Future[Any]] = [loading, serving]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if loading.done():
        facts = loading.result()
        log.note(f"{model.name} is on {facts.device}, with a context of {facts.context} tokens")
    else:
        loading.cancel()


class _Server(uvicorn.Server):
    """uvicorn, which ends in good order: answers may finish, for a while, and then end with an error."""

    def __init__(self, app: object, service: Service, seconds: float) -> None:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=int(seconds) + 5,
        )
        super().__init__(config)
        self._service, self._seconds = service, seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal. A second one does not wait for answers."""
        again = self._service.draining
        self._service.draining = self.should_exit = True
        asyncio.get_running_loop().call_later(0 if again else self._seconds, self._end_answers)

    def _end_answers(self) -> None:
        for model in self._service.models.values():
            model.runner.end_all("the server was shut down")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise HightideError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return listener


def _address(host: str, listener: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"
