"""What an answer should be like: how long, where it ends, how its tokens are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from hightide.errors import InputError
from hightide.llm.decoder import Progress
from hightide.llm.token_sampling import Sampling

ON_FULL = ("stop", "shift")


@dataclass(frozen=True)
class GenerationOptions:
    """The options of `LLM.stream` and `LLM.generate`; those of `Sampling` may be given beside them by name."""

    max_tokens: int | None = None  # of the answer; None: until the context is full
    stop: Sequence[str] = ()  # end before any of these texts
    stop_ids: Sequence[int] = ()  # end at any of these tokens, besides the model's own
    seed: int | None = None  # the same seed gives the same text on the same adapter
    speculate: bool = False  # guess tokens from the text so far, check several in one call; needs temperature 0
    on_full: str = "stop"  # at a full context: "stop", or "shift" out its oldest half
    progress: Progress | None = None  # called with (prompt tokens read, prompt tokens)
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 0:
            raise InputError(f"max_tokens cannot be {self.max_tokens}")
        if self.on_full not in ON_FULL:
            raise InputError(f"on_full must be 'stop' or 'shift', not {self.on_full!r}")
        if self.speculate and (self.sampling.temperature > 0 or not self.sampling.on_device):
            raise InputError("speculation needs temperature 0, no penalties and no logprobs")

    def changed(self, changes: Mapping[str, Any]) -> GenerationOptions:
        """With other values by name, the fields of `Sampling` among them."""
        own, sampling = _names(GenerationOptions), _names(Sampling)
        if unknown := next((name for name in changes if name not in (*own, *sampling)), None):
            known = ", ".join(name for name in (*own, *sampling) if name != "sampling")
            raise InputError(f"there is no option {unknown!r}; the options are {known}")
        rest = {name: value for name, value in changes.items() if name in own}
        chosen = {name: value for name, value in changes.items() if name in sampling}
        if chosen:
            rest["sampling"] = replace(rest.get("sampling", self.sampling), **chosen)
        return replace(self, **rest)


def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))
