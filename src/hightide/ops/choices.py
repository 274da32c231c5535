"""Routes that depend on the adapter: what can be chosen, and what is chosen.

An op that has several routes for one shape declares a `Choice` beside its kernels and asks
`ctx.choose(CHOICE)` in `plan`. The answer is, in this order: what the caller forces (`routes=`, `--route`), what
HIGHTIDE_ROUTES says ("linear.activations=int8,linear.gemv=split"), what was measured on this adapter
(`hightide tune`), the default for an adapter of its traits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hightide.errors import InputError
from hightide.option_checks import shown
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
    by_caller: bool = False  # no matter of speed: only the caller chooses
    exact: bool = True  # no: options change the numbers (`Op.evaluate_on`), so that only the caller may choose

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

    @property
    def exact(self) -> bool:
        """No option is chosen that changes the numbers."""
        return all(choice.exact or self(choice) == choice.default(self.traits) for choice in CHOICES.values())


def check_routes(routes: Mapping[str, str]) -> dict[str, str]:
    """Routes that a caller forces, by the name of the choice; InputError for one that does not exist."""
    if not isinstance(routes, Mapping):
        raise InputError(f"routes must be a dict such as {{'linear.gemv': 'split'}}, not {shown(routes)}")
    for name, option in routes.items():
        if name not in CHOICES:
            raise InputError(f"there is no choice of routes {name!r}; the choices are {', '.join(sorted(CHOICES))}")
        if option not in CHOICES[name].options:
            raise InputError(f"{name} has no route {option!r}; its routes are {', '.join(CHOICES[name].options)}")
    return dict(routes)


def parse_routes(items: Iterable[str]) -> dict[str, str]:
    """Routes written as `linear.gemv=split`."""
    routes: dict[str, str] = {}
    for item in items:
        name, equals, option = (part.strip() for part in item.partition("="))
        if not equals:
            raise InputError(f"a route is written as NAME=OPTION, such as linear.gemv=split, not as {item!r}")
        routes[name] = option
    return check_routes(routes)


def routes_from_environment() -> dict[str, str]:
    """The routes that HIGHTIDE_ROUTES forces."""
    try:
        return parse_routes(filter(None, os.environ.get("HIGHTIDE_ROUTES", "").split(",")))
    except InputError as error:
        raise InputError(f"HIGHTIDE_ROUTES: {error}") from None
