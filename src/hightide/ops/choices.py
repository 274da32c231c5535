"""Routes that depend on the adapter: what can be chosen, and what is chosen.

An op that has several routes for one shape declares a `Choice` beside its kernels and asks
`ctx.choose(CHOICE)` in `plan`. The answer is, in this order: what the caller forces (tests, `verify`), what
HIGHTIDE_ROUTES says ("linear.activations=int8,linear.gemv=split"), what was measured on this adapter
(`hightide tune`), the default for an adapter of its traits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hightide.errors import InputError
from hightide.traits import SOFTWARE, Traits


def _always(traits: Traits, option: str) -> bool:
    return True


@dataclass(frozen=True)
class Choice:
    """Options that give the same result; `possible` leaves out those that an adapter cannot run."""

    name: str  # "linear.gemv"
    options: tuple[str, ...]
    default: Callable[[Traits], str]
    possible: Callable[[Traits, str], bool] = _always
    exact: bool = True  # no: options change the numbers, so that only the caller may choose

    def __post_init__(self) -> None:
        CHOICES[self.name] = self


CHOICES: dict[str, Choice] = {}


@dataclass(frozen=True)
class Choices:
    """What is chosen on one adapter."""

    traits: Traits = SOFTWARE
    chosen: Mapping[str, str] = field(default_factory=dict)  # by the choice's name

    def __call__(self, choice: Choice) -> str:
        option = self.chosen.get(choice.name)
        if option in choice.options and choice.possible(self.traits, option):
            return option
        return choice.default(self.traits)


def routes_from_environment() -> dict[str, str]:
    """What HIGHTIDE_ROUTES chooses; InputError for what there is not."""
    chosen: dict[str, str] = {}
    for item in filter(None, os.environ.get("HIGHTIDE_ROUTES", "").split(",")):
        name, _, option = (part.strip() for part in item.partition("="))
        if name not in CHOICES:
            raise InputError(f"HIGHTIDE_ROUTES has {name!r}; what can be chosen is {', '.join(sorted(CHOICES))}")
        if option not in CHOICES[name].options:
            raise InputError(f"HIGHTIDE_ROUTES has {name}={option}; it can be {', '.join(CHOICES[name].options)}")
        chosen[name] = option
    return chosen
