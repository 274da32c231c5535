"""What an answer should be like: how long, where it ends, how its tokens are chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from hightide.errors import InputError
from hightide.llm.decoder import Progress
from hightide.llm.grammar import Grammar
from hightide.llm.token_sampling import Sampling
from hightide.option_checks import check_bool, check_callable, check_int, checked_list, shown

ON_FULL = ("stop", "shift")


@dataclass(frozen=True)
class GenerationOptions:
    """The options of `LLM.stream` and `LLM.generate`; those of `Sampling` may be given beside them by name."""

    max_tokens: int | None = None  # of the answer; None: until the context is full
    stop: Sequence[str] = ()  # end before any of these texts
    stop_ids: Sequence[int] = ()  # end at any of these tokens, besides the model's own
    ignore_eos: bool = False  # the model's own end tokens are tokens as others
    seed: int | None = None  # the same seed gives the same text on the same adapter
    speculate: bool = False  # guess tokens from the text so far, check several in one call
    on_full: str = "stop"  # at a full context: "stop", or "shift" out its oldest half
    progress: Progress | None = None  # called with (prompt tokens read, prompt tokens)
    grammar: Grammar | None = None  # what the answer must look like
    adapters: Mapping[str, float] | None = None  # how much of which adapters of the model; None: nothing of any
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            check_int("max_tokens", self.max_tokens, 0)
        if self.seed is not None:
            check_int("seed", self.seed, 0)
        stops = checked_list("stop", self.stop, "strings")
        if not all(isinstance(stop, str) and stop for stop in stops):
            raise InputError("stop must be a list of strings, none of them empty")
        for token in checked_list("stop_ids", self.stop_ids, "token ids"):
            check_int("a token id in stop_ids", token, 0)
        check_bool("ignore_eos", self.ignore_eos)
        check_bool("speculate", self.speculate)
        check_callable("progress", self.progress)
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise InputError(f"grammar must be a Grammar, such as Grammar.json_schema gives, not {shown(self.grammar)}")
        if not isinstance(self.sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {shown(self.sampling)}")
        if self.on_full not in ON_FULL:
            raise InputError(f"on_full must be 'stop' or 'shift', not {self.on_full!r}")
        if self.adapters is not None:
            check_weights(self.adapters)
        if self.speculate and not self.sampling.on_device:
            raise InputError("speculation needs tokens that are chosen on the device: no penalties and no logprobs")

    def changed(self, changes: Mapping[str, Any]) -> GenerationOptions:
        """With other values by name, the fields of `Sampling` among them."""
        own, sampling = _names(GenerationOptions), _names(Sampling)
        if unknown := next((name for name in changes if name not in (*own, *sampling)), None):
            known = ", ".join(name for name in (*own, *sampling) if name != "sampling")
            raise InputError(f"there is no option {unknown!r}; the options are {known}")
        rest = {name: value for name, value in changes.items() if name in own}
        chosen = {name: value for name, value in changes.items() if name in sampling}
        if chosen and isinstance(rest.get("sampling", self.sampling), Sampling):
            rest["sampling"] = replace(rest.get("sampling", self.sampling), **chosen)
        return replace(self, **rest)


def read_options(options: GenerationOptions | None, changes: Mapping[str, Any]) -> GenerationOptions:
    """Options as a caller gives them: all in one, by name, or both."""
    options = GenerationOptions() if options is None else options
    if not isinstance(options, GenerationOptions):
        raise InputError(f"options must be a GenerationOptions, not {shown(options)}; others are given by name")
    return options.changed(changes)


def check_weights(adapters: Any) -> None:
    """InputError unless these are names of adapters with finite numbers."""
    if not isinstance(adapters, Mapping) or not all(isinstance(name, str) for name in adapters):
        raise InputError(f"adapters must be names with weights, such as {{'style': 1.0}}, not {shown(adapters)}")
    for name, weight in adapters.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise InputError(f"the weight of the adapter {name} must be a finite number, not {shown(weight)}")


def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))
