"""The model that a command runs: found by name, opened with a progress bar, described."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hightide.cli.options import ModelOptions, read_merging
from hightide.cli.progress import loading
from hightide.errors import InputError
from hightide.llm import default_model
from hightide.llm.answer import Stats
from hightide.llm.embedder import Embedder
from hightide.llm.engine import Engine
from hightide.llm.llm import LLM
from hightide.ops.choices import parse_routes
from hightide.units import counted

Opened = TypeVar("Opened", LLM, Engine, Embedder)


def model_file(name: str) -> Path:
    """The file or folder that a command was given, or the default model; InputError if it is no model or program."""
    path = default_model.named_model(name)
    if path.is_dir():
        return path
    with path.open("rb") as file:
        start = file.read(8)
    if start[:4] != b"GGUF" and start[4:] != b"ET12":
        raise InputError(f"{path} is neither a GGUF model nor a .pte program")
    return path


def open_model(name: str | None, options: ModelOptions) -> tuple[LLM, float]:
    """The model of this name, and the seconds it took to load. None: the model of the last chat, or the default."""
    start = time.perf_counter()
    return _open(LLM, name, options), time.perf_counter() - start


def open_engine(name: str | None, options: ModelOptions, **more: Any) -> Engine:
    """The same for many answers at once."""
    return _open(Engine, name, options, **more)


def open_embedder(name: str, options: ModelOptions, **more: Any) -> Embedder:
    """The same for vectors."""
    return _open(Embedder, name, options, **more)


def _open(kind: Callable[..., Opened], name: str | None, options: ModelOptions, **more: Any) -> Opened:
    tokenizer = options.tokenizer
    last = default_model.remembered() if name is None else None
    if last is not None:
        path, tokenizer = model_file(str(last[0])), tokenizer or last[1]
    else:
        path = model_file(default_model.DEFAULT if name is None else name)
    with loading(path.name) as tell:
        return kind(
            path,
            tokenizer=tokenizer,
            context=options.context,
            device=options.device,
            kv=None if options.kv is None else options.kv.value,
            quantize=None if options.quantize is None else options.quantize.value,
            merge=read_merging(options.merge),
            routes=parse_routes(options.route or ()),
            progress=tell,
            **more,
        )


def require_tokenizer(llm: LLM | Engine | Embedder, instead: str = "") -> None:
    if llm.tokenizer is None:
        raise InputError(f"{llm.path.name} has no tokenizer; give one with --tokenizer{instead}")


def describe(llm: LLM, stats: Stats, seconds: float) -> list[str]:
    """Times and memory, a line each."""
    memory = stats.device_bytes
    kinds = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in memory.items() if size >= 50_000)
    reused = f" ({stats.reused_tokens} of them reused)" if stats.reused_tokens else ""
    calls = f" in {stats.calls + 1} calls" if stats.calls + 1 < stats.new_tokens else ""
    return [
        f"model          {llm.path.name} on {llm.decoder.device}, context {llm.context}, loaded in {seconds:.2f} s",
        f"prompt         {counted(stats.prompt_tokens, 'token')}{reused}, {stats.prefill_rate:.1f} tok/s",
        f"first token    after {stats.time_to_first_token:.2f} s",
        f"answer         {counted(stats.new_tokens, 'token')}{calls}, {stats.decode_rate:.1f} tok/s",
        f"device memory  {sum(memory.values()) / 1e6:.1f} MB: {kinds}" if memory else "device memory  unknown",
    ]
