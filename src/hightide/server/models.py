"""The models of a server: a tokenizer here in the front, and who does the model's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from hightide.errors import InputError
from hightide.formats.model_file import is_model, read_model
from hightide.llm.default_model import DEFAULT, named_model
from hightide.llm.tokenizer import Tokenizer, find_tokenizer
from hightide.server.api_errors import ApiError, bad_request
from hightide.server.job_runner import JobRunner
from hightide.server.reasoning import TAGS

# Special tokens that have a meaning for the server, besides those that begin and end thoughts.
TOOL_MARKUP = (
    *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<|tool_call>", "<tool_call|>", '<|"|>'),
)


@dataclass(frozen=True)
class ModelSettings:
    """A model to serve, and how `hightide.Engine` opens it."""

    name: str
    path: Path
    tokenizer: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ServedModel:
    name: str
    tokenizer: Tokenizer
    runner: JobRunner
    thought_ids: frozenset[int]  # special tokens that are shown to those who look for thoughts
    tool_ids: frozenset[int]  # and to those who look for calls of tools
    adapters: tuple[str, ...] = ()  # that it is opened with; an answer has those that its request asks for
    parent: str = ""  # the name of the model that this one is, with one of its adapters
    created: int = field(default_factory=lambda: int(time.time()))

    def listing(self) -> dict[str, Any]:
        parent = {"parent": self.parent} if self.parent else {}
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "hightide", **parent}

    @property
    def strengths(self) -> dict[str, float]:
        """How much of which adapters its answers have, unless a request says more."""
        return {self.name: 1.0} if self.parent else {}

    def with_adapters(self) -> dict[str, ServedModel]:
        """By the names that requests call them by: the model as it is, and with each of its adapters."""
        return {self.name: self} | {name: replace(self, name=name, parent=self.name) for name in self.adapters}


MakeRunner: TypeAlias = Callable[[str, str, dict[str, Any]], JobRunner]
"""The name of a model, its file, and the options of `hightide.Engine`."""


def open_served_model(settings: ModelSettings, make_runner: MakeRunner) -> ServedModel:
    """Reads the tokenizer; the model is loaded when it is wanted."""
    path = named_model(str(settings.path))
    metadata = read_model(path).metadata if is_model(path) else None
    tokenizer = find_tokenizer(path, settings.tokenizer, metadata)
    if tokenizer is None:
        raise InputError(f"{path.name} has no tokenizer; give one with --tokenizer")
    given = {} if settings.tokenizer is None else {"tokenizer": str(settings.tokenizer)}

    def named(names: tuple[str, ...]) -> frozenset[int]:
        return frozenset(id for id in tokenizer.control if tokenizer.token(id) in names)

    file = DEFAULT if str(settings.path) == DEFAULT else str(path)
    runner = make_runner(settings.name, file, settings.options | given)
    thoughts, tools = named((*TAGS, *TAGS.values())), named(TOOL_MARKUP)
    adapters = tuple(settings.options.get("adapters", ()))
    return ServedModel(settings.name, tokenizer, runner, thoughts, tools, adapters)


def choose_model(models: dict[str, ServedModel], name: Any) -> ServedModel:
    """The model that a request names, or the only one, without its adapters."""
    plain = [model for model in models.values() if not model.parent]
    if name is None and len(plain) == 1:
        return plain[0]
    if not isinstance(name, str):
        raise bad_request("model must be the name of a model", "model")
    if name not in models:
        known = ", ".join(models)
        message = f"there is no model {name!r} here; there is {known}"
        raise ApiError(404, message, parameter="model", code="model_not_found")
    return models[name]
