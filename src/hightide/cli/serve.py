"""`hightide serve`: a server with the API of OpenAI."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from hightide.cli.groups import grouped
from hightide.cli.options import MODEL_HELP, ModelOptions, read_merging
from hightide.errors import HightideError, InputError
from hightide.formats.source_file import plain_name
from hightide.llm.default_model import DEFAULT
from hightide.ops.choices import parse_routes
from hightide.option_checks import checked_bytes

try:
    from hightide.server.cluster.cluster import Cluster, ClusterSettings
    from hightide.server.logs import Log
    from hightide.server.models import ModelSettings
    from hightide.server.run import ServerSettings
    from hightide.server.run import serve as run_server
    from hightide.server.security import make_security, read_keys
    from hightide.server.supervisor import WorkerLimits
except ModuleNotFoundError as error:
    if (error.name or "").startswith("hightide"):
        raise
    raise HightideError(f"the server needs {error.name}: pip install 'hightide[serve]'") from None


def _network(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Network", **options)


def _cluster(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Several machines", **options)


def _many(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Many requests", **options)


class Pooling(str, Enum):
    auto = "auto"
    mean = "mean"
    cls = "cls"
    last = "last"
    rank = "rank"


@dataclass(frozen=True)
class NetworkOptions:
    """Where the server listens, and to whom."""

    host: Annotated[str, _network(help="The address to listen on. Others than this machine need an API key.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, _network(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8080
    api_key_file: Annotated[
        Path | None, _network(metavar="FILE", help="API keys, one per line. Default: HIGHTIDE_API_KEY, or none.")
    ] = None
    cors: Annotated[
        list[str] | None, _network(metavar="ORIGIN", help="A site whose pages may ask; * for all. Repeatable.")
    ] = None
    max_body: Annotated[str, _network(metavar="SIZE", help="The largest request.")] = "8 MiB"
    ready_file: Annotated[
        Path | None, _network(metavar="FILE", help="Write the address to this file once the server answers.")
    ] = None
    log_json: Annotated[bool, _network("--log-json", help="Log as JSON.")] = False


@dataclass(frozen=True)
class EngineOptions:
    """How many requests there may be, and for how long."""

    max_sequences: Annotated[int, _many(min=1, help="Answers that a model makes at a time.")] = 16
    max_waiting: Annotated[int, _many(min=0, help="Answers that wait; more are refused with status 429.")] = 1024
    kv_memory: Annotated[str | None, _many(metavar="SIZE", help="What all keys and values may take, such as 4GiB.")] = (
        None
    )
    chunk: Annotated[
        int | None,
        _many(min=1, help="Most tokens of one step, those of prompts included. Default: 512 on a GPU, else 128."),
    ] = None
    prefix_cache: Annotated[
        Path | None, _many(metavar="FOLDER", help="Keep prompts that were read in this folder, for the next start.")
    ] = None
    prefix_cache_size: Annotated[str, _many(metavar="SIZE", help="The most that this folder may take.")] = "1 GiB"
    draft: Annotated[Path | None, _many(metavar="FILE", help="A smaller model that guesses tokens.")] = None
    adapter: Annotated[
        list[str] | None,
        _many(
            "--adapter",
            "--lora",
            metavar="NAME=PATH",
            help="A LoRA adapter, which requests name as a model. Repeatable.",
        ),
    ] = None
    reproducible: Annotated[
        bool, _many("--reproducible", help="Answers do not depend on what else is asked at the same time.")
    ] = False
    pooling: Annotated[
        Pooling | None, _many(help="Give embeddings, of which of a text's tokens. Default: as the file says.")
    ] = None
    timeout: Annotated[str, _many(metavar="TIME", help="Longest time for an answer, such as 90s, 10m or 1h.")] = "1h"
    step_timeout: Annotated[
        str, _many(metavar="TIME", help="Start the model's process again after so long without a step.")
    ] = "10m"
    shutdown_timeout: Annotated[
        str, _many(metavar="TIME", help="How long answers may go on when the server is to end.")
    ] = "30s"
    idle_unload: Annotated[str | None, _many(metavar="TIME", help="Unload a model that nobody used for so long.")] = (
        None
    )


@dataclass(frozen=True)
class ClusterOptions:
    """Where the models run, if not on this machine alone."""

    ray: Annotated[bool, _cluster("--ray", help="Run the models on a Ray cluster: this machine's, or a new one.")] = (
        False
    )
    replicas: Annotated[
        int | None, _cluster(min=1, help="Engines on the cluster. Default: one for each GPU, or for each machine.")
    ] = None


@grouped
def serve(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP} If left out: the default.")
    ] = None,
    *,
    name: Annotated[
        str | None, typer.Option(help="What requests call the model. Default: the name of its file.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME=FILE", help="One of several models, loaded on demand. Repeatable."),
    ] = None,
    opening: ModelOptions,
    engine: EngineOptions,
    network: NetworkOptions,
    machines: ClusterOptions,
) -> None:
    """Serve models over HTTP, with the API of OpenAI."""
    options = _engine_options(opening, engine)
    named = [ModelSettings(*one, opening.tokenizer, options) for one in _named_models(model, name, models or [])]
    _check_names([one.name for one in named], options.get("adapters", {}))
    idle = None if engine.idle_unload is None else read_seconds("--idle-unload", engine.idle_unload)
    limits = WorkerLimits(step=read_seconds("--step-timeout", engine.step_timeout), idle=idle)
    run_server(
        ServerSettings(
            models=named,
            security=make_security(network.host, read_keys(network.api_key_file), network.cors or ()),
            host=network.host,
            port=network.port,
            ready_file=network.ready_file,
            max_sequences=engine.max_sequences,
            max_waiting=engine.max_waiting,
            max_body=checked_bytes("--max-body", network.max_body),
            request_seconds=read_seconds("--timeout", engine.timeout),
            shutdown_seconds=read_seconds("--shutdown-timeout", engine.shutdown_timeout),
            limits=limits,
            log_json=network.log_json,
            cluster=_make_cluster(machines, engine, limits, Log(network.log_json)),
        )
    )


def _make_cluster(machines: ClusterOptions, engine: EngineOptions, limits: WorkerLimits, log: Log) -> Cluster | None:
    if not machines.ray:
        if machines.replicas is not None:
            raise InputError("--replicas needs --ray")
        return None
    settings = ClusterSettings(machines.replicas, engine.max_sequences, engine.max_waiting, limits)
    return Cluster(settings, log.note)


def _named_models(model: str | None, name: str | None, several: list[str]) -> list[tuple[str, Path]]:
    """The models with the names that requests call them by."""
    if several:
        if model is not None or name is not None:
            raise InputError("give one model, perhaps with --name, or several with --model NAME=FILE")
        pairs = [tuple(text.partition("=")[::2]) for text in several]
        if bad := next((text for text, pair in zip(several, pairs, strict=True) if not all(pair)), None):
            raise InputError(f"--model must be NAME=FILE, not {bad!r}")
        names = [pair[0] for pair in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"two models are called {twice!r}")
        return [(name, Path(file)) for name, file in pairs]
    file = DEFAULT if model is None else model
    return [(name or plain_name(file), Path(file))]


def _engine_options(opening: ModelOptions, engine: EngineOptions) -> dict[str, Any]:
    """As `hightide.Engine` takes them, in plain data."""
    options: dict[str, Any] = {
        "context": opening.context,
        "device": opening.device,
        "kv": None if opening.kv is None else opening.kv.value,
        "quantize": None if opening.quantize is None else opening.quantize.value,
        "adapters": _named_adapters(engine.adapter or ()),
        "merge": read_merging(opening.merge) or None,
        "routes": parse_routes(opening.route or ()),
        "max_sequences": engine.max_sequences,
        "max_waiting": engine.max_sequences + engine.max_waiting,
        "kv_memory": engine.kv_memory,
        "chunk": engine.chunk,
        "reproducible": engine.reproducible,
        "pooling": None if engine.pooling is None else engine.pooling.value,
        "draft": None if engine.draft is None else str(engine.draft),
        "prefix_cache_size": engine.prefix_cache_size,
        "prefix_cache": None if engine.prefix_cache is None else str(engine.prefix_cache),
    }
    return {name: value for name, value in options.items() if value is not None}


def _named_adapters(given: Sequence[str]) -> dict[str, str] | None:
    pairs = [(name, path) for name, _, path in (text.partition("=") for text in given)]
    if bad := next((text for text, pair in zip(given, pairs, strict=True) if not all(pair)), None):
        raise InputError(f"--adapter must be NAME=PATH, not {bad!r}")
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two adapters are called {twice!r}")
    return dict(pairs) or None


def _check_names(models: Sequence[str], adapters: Container[str]) -> None:
    """A request names a model or an adapter of it, so that each name must be one thing."""
    if adapters and len(models) > 1:
        raise InputError("--adapter is for a server of one model; start one server for each model with adapters")
    if models[0] in adapters:
        raise InputError(f"the model and an adapter are both called {models[0]!r}; --name gives the model another name")


def read_seconds(name: str, text: str) -> float:
    """`90s`, `10m`, `1h`, or seconds."""
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)?\s*", text)
    if found is None or float(found[1]) == 0:
        raise InputError(f"{name} must be a time such as 90s, 10m or 1h, not {text!r}")
    return float(found[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[found[2] or "s"]
