"""The parameters of a request, read one by one: each is honoured, or refused by name. null is as good as left out."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hightide.errors import HightideError
from hightide.llm.options import GenerationOptions
from hightide.option_checks import shown
from hightide.server.api_errors import bad_request
from hightide.server.grammars import GrammarFields, grammar_fields
from hightide.server.models import ServedModel

MAX_SAMPLES = 64
MAX_STOPS = 32
MAX_TOP_LOGPROBS = 20
MAX_SEED = 2**62


class Parameters:
    """A JSON object of which every name must be asked for before `end`."""

    def __init__(self, fields: Mapping[str, Any], within: str = "") -> None:
        """`within` is what the object is part of, such as `stream_options.`"""
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._within = within
        self._asked: set[str] = set()

    def end(self) -> None:
        """Refuse what nobody asked for."""
        if unknown := next((name for name in self._fields if name not in self._asked), None):
            name = f"{self._within}{unknown}"
            raise bad_request(f"the parameter {shown(name)} is not supported", name, "unknown_parameter")

    def take(self, name: str, default: Any = None) -> Any:
        """A value of any type."""
        self._asked.add(name)
        return self._fields.get(name, default)

    def integer(self, name: str, least: int, most: int, default: int | None = None) -> int | None:
        value = self.take(name, default)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(name, f"an integer from {least} to {most}", value)
        return value

    def number(self, name: str, least: float, most: float, default: float) -> float:
        value = self.take(name, default)
        fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not fine or not least <= value <= most:
            raise self.wrong(name, f"a number from {least:g} to {most:g}", value)
        return float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.take(name, default)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string", value)
        return value

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.take(name, default)
        if value not in choices:
            raise self.wrong(name, " or ".join(f'"{choice}"' for choice in choices), value)
        return str(value)

    def object(self, name: str) -> Parameters | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return Parameters(value, f"{self._within}{name}.")

    def array(self, name: str) -> list[Any] | None:
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, "an array", value)
        return value

    def wrong(self, name: str, wanted: str, value: Any) -> HightideError:
        name = f"{self._within}{name}"
        return bad_request(f"{name} must be {wanted}, not {shown(value)}", name)


@dataclass(frozen=True)
class AnswerOptions:
    """What a request wants of its answers, as the engine takes it."""

    options: dict[str, Any]  # of `Engine.submit`
    stops: list[str]
    seeds: list[int]  # one per answer
    grammar: GrammarFields | None


def read_sampling(
    parameters: Parameters,
    model: ServedModel,
    max_tokens: int | None,
    logprobs: int | None,
    samples: int,
    grammar: GrammarFields | None = None,
) -> AnswerOptions:
    """The parameters that all endpoints share. `logprobs`: how many alternatives to each token, None for no report.
    `grammar`: what the answer must be like already."""
    stops = _stops(parameters)
    options: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": parameters.number("temperature", 0, 2, 1.0),
        "top_p": max(parameters.number("top_p", 0, 1, 1.0), 1e-6),  # 0: the likeliest token alone
        "top_k": max(parameters.integer("top_k", -1, 2**31 - 1) or 0, 0),  # -1: off, as in vLLM
        "min_p": parameters.number("min_p", 0, 1, 0.0),
        "presence_penalty": parameters.number("presence_penalty", -2, 2, 0.0),
        "frequency_penalty": parameters.number("frequency_penalty", -2, 2, 0.0),
        "repetition_penalty": parameters.number("repetition_penalty", 0.01, 100, 1.0),
        "logit_bias": _bias(parameters),
        "ignore_eos": parameters.boolean("ignore_eos"),
        "adapters": _adapters(parameters, model),
        "stop": stops,
        "stop_ids": _stop_ids(parameters),
        "logprobs": 0 if logprobs is None else max(1, logprobs),
    }
    seed = parameters.integer("seed", -(2**63), 2**64 - 1)
    # Chosen here, so that a sampled answer goes on in the same way with another worker.
    seed = random.getrandbits(62) if seed is None else seed % MAX_SEED
    try:
        GenerationOptions().changed(options)
    except HightideError as error:
        raise bad_request(str(error)) from None
    asked = read_grammar(parameters)
    if asked is not None and grammar is not None:
        raise bad_request("an answer that must call a tool cannot have another format", "tool_choice")
    return AnswerOptions(options, stops, [seed + n for n in range(samples)], asked or grammar)


def _adapters(parameters: Parameters, model: ServedModel) -> dict[str, Any]:
    """How much of which: what the model has by its name, changed by `adapters`, or by `lora` as llama-server has it."""
    given, numbered = parameters.take("adapters"), parameters.array("lora")
    if given is not None and numbered is not None:
        raise bad_request("give adapters or lora, not both", "lora")
    if numbered is not None:
        given = dict(_numbered_adapter(model, n, item) for n, item in enumerate(numbered))
    if given is not None and not isinstance(given, dict):
        raise parameters.wrong("adapters", "names of adapters with numbers", given)
    return model.strengths | (given or {})


def _numbered_adapter(model: ServedModel, n: int, item: Any) -> tuple[str, Any]:
    """`{"id": 0, "scale": 0.5}`: half of the first adapter of the command line."""
    if not isinstance(item, dict):
        raise bad_request(f"lora[{n}] must be an object with id and scale, not {shown(item)}", f"lora[{n}]")
    fields = Parameters(item, f"lora[{n}].")
    number, scale = fields.integer("id", 0, 2**31 - 1), fields.take("scale", 0.0)
    fields.end()
    if number is None or number >= len(model.adapters):
        counted = f"there are {len(model.adapters)}, from 0 on" if model.adapters else "the model has none"
        raise bad_request(f"lora[{n}].id is no adapter: {counted}", f"lora[{n}].id")
    return model.adapters[number], scale


def _stops(parameters: Parameters) -> list[str]:
    value = parameters.take("stop", [])
    stops = [value] if isinstance(value, str) else value
    fine = isinstance(stops, list) and all(isinstance(stop, str) and stop for stop in stops)
    if not fine or len(stops) > MAX_STOPS:
        raise parameters.wrong("stop", f"a string or an array of at most {MAX_STOPS}, none of them empty", value)
    return list(stops)


def _stop_ids(parameters: Parameters) -> list[int]:
    value = parameters.array("stop_token_ids") or []
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in value):
        raise parameters.wrong("stop_token_ids", "an array of token ids", value)
    return value


def _bias(parameters: Parameters) -> dict[int, float]:
    value = parameters.take("logit_bias", {})
    if not isinstance(value, dict) or not all(name.isdecimal() and len(name) < 12 for name in value):
        raise parameters.wrong("logit_bias", "an object of token ids and numbers", value)
    biases = Parameters(value, "logit_bias.")
    return {int(token): biases.number(token, -100, 100, 0.0) for token in value}


def read_grammar(parameters: Parameters) -> GrammarFields | None:
    """`response_format`, or one of the names that other servers have for the same."""
    found = [
        _response_format(parameters.object("response_format")),
        _guided(parameters, "guided_json", "json_schema", (dict, str, bool)),
        _guided(parameters, "json_schema", "json_schema", (dict, str, bool)),
        _guided(parameters, "guided_regex", "regex", (str,)),
        _guided(parameters, "guided_choice", "choice", (list,)),
        _guided(parameters, "guided_grammar", "lark", (str,)),
        _guided(parameters, "grammar", "lark", (str,)),
    ]
    grammars = [grammar for grammar in found if grammar is not None]
    if len(grammars) > 1:
        raise bad_request("an answer can have one grammar: response_format, or one of the guided parameters")
    return grammars[0] if grammars else None


def _guided(parameters: Parameters, name: str, kind: str, types: tuple[type, ...]) -> GrammarFields | None:
    value = parameters.take(name)
    if value is None:
        return None
    fine = isinstance(value, types)
    if isinstance(value, list):
        fine = fine and bool(value) and all(isinstance(choice, str) for choice in value)
    if not fine:
        raise parameters.wrong(
            name, {"choice": "an array of strings", "json_schema": "a schema"}.get(kind, "text"), value
        )
    return checked_grammar(name, kind, value)


def _response_format(given: Parameters | None) -> GrammarFields | None:
    if given is None:
        return None
    kind = given.one_of("type", ("text", "json_object", "json_schema"), "")
    grammar = None
    if kind == "json_object":
        grammar = checked_grammar("response_format", kind)
    elif kind == "json_schema":
        inner = given.object("json_schema")
        if inner is None:
            raise bad_request("response_format.json_schema is missing", "response_format.json_schema")
        grammar = read_schema_format(inner, "response_format.json_schema.schema")
    given.end()
    return grammar


def read_schema_format(given: Parameters, name: str) -> GrammarFields:
    """`{"name": ..., "schema": ..., "strict": ...}`: the schema is always kept to."""
    given.text("name")
    given.text("description")
    given.boolean("strict")
    schema = given.take("schema")
    if not isinstance(schema, dict):
        raise bad_request(f"{name} must be a JSON schema", name)
    given.end()
    return checked_grammar(name, "json_schema", schema)


def checked_grammar(name: str, kind: str, source: Any = None) -> GrammarFields:
    try:
        return grammar_fields(kind, source)
    except HightideError as error:
        raise bad_request(str(error), name) from None
