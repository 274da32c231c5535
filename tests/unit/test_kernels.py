"""Every kernel of every route, without a GPU: what a plan gives is what its file declares, in every variant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from case_plans import CASES, plans

import hightide.ops
from hightide.errors import UnsupportedError
from hightide.ops.case import Case
from hightide.ops.choices import CHOICES, Choice, Choices
from hightide.ops.kernel import Kernel
from hightide.ops.kernel import kernel as made_kernel
from hightide.runtime.case_graph import CaseGraph
from hightide.traits import SOFTWARE, Traits
from hightide.wgsl.shader import PARAMS_SIZE

BARE = Traits()
SUBGROUPS = Traits(f16=True, subgroups=True, subgroup_size=32, invocations=1024, workgroup_bytes=32768)
WIDE_SOFTWARE = Traits(software=True, f16=True, subgroups=True, subgroup_size=8, storage_buffers=16)
FOLDER = Path(hightide.ops.__file__).parent


@dataclass(frozen=True)
class AskedChoices(Choices):
    """Remembers what ops ask for."""

    asked: dict[str, Choice] = field(default_factory=dict)

    def __call__(self, choice: Choice) -> str:
        self.asked[choice.name] = choice
        return super().__call__(choice)


def routes(built: CaseGraph, traits: Traits) -> Iterator[Mapping[str, str]]:
    """None forced, then each option of what is asked for."""
    usual = AskedChoices(traits)
    for _ in plans(built, usual):
        pass
    yield {}
    for name, choice in usual.asked.items():
        yield from ({name: option} for option in choice.options if choice.possible(traits, option))


def kernels_of(case: Case) -> set[Kernel]:
    built = CaseGraph(case, np.random.default_rng(7))
    found: set[Kernel] = set()
    for traits in (SOFTWARE, WIDE_SOFTWARE, BARE, SUBGROUPS):
        for forced in routes(built, traits):
            for plan in plans(built, Choices(traits, forced)):
                for step in plan.steps:
                    step.dispatch.check_types()
                    assert len(step.dispatch.kernel.interface.binding_names) <= traits.storage_buffers
                    assert len(step.dispatch.kernel.interface.pack(step.dispatch.params)) == PARAMS_SIZE
                    found.add(step.dispatch.kernel)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.name}")
def test_what_is_given_is_what_is_declared(case: Case) -> None:
    for kernel in kernels_of(case):
        bindings = (*kernel.interface.reads, *kernel.interface.writes)
        every = frozenset(binding.name for binding in bindings if binding.may_be_halves)
        plain, halves = kernel.shader().text, kernel.shader(every).text
        assert plain.count("var<storage") == halves.count("var<storage") == len(bindings)
        assert "$" not in plain and "array<f16>" not in plain
        assert ("enable f16;" in halves) == bool(every)


def test_every_choice_of_routes_is_tried() -> None:
    asked: set[str] = set()
    for case in CASES:
        choices = AskedChoices(SUBGROUPS)
        for _ in plans(CaseGraph(case, np.random.default_rng(7)), choices):
            pass
        asked |= set(choices.asked)
    assert asked == set(CHOICES)


def test_every_kernel_file_is_named_somewhere() -> None:
    files = [path for path in FOLDER.rglob("*") if path.suffix in (".py", ".wgsl")]
    texts = {path: path.read_text("utf-8") for path in files}
    for path in (path for path in files if path.suffix == ".wgsl"):
        named = re.compile(rf"\b{path.stem}\b", re.IGNORECASE)  # blocks/unpack/q4_0.wgsl is for the type Q4_0
        assert any(named.search(text) for other, text in texts.items() if other != path), path


def test_numbers_that_do_not_fit_a_parameter() -> None:
    made = made_kernel("fill/fill.wgsl", T="f32").interface
    params = {"words": 1, "start": 1.0, "step": 0.0}

    def packed(**changes: float) -> bytes:
        return made.pack(tuple({**params, **changes}[name] for name in made.param_names))

    assert packed(start=-1.8e308) == packed(start=-math.inf)
    assert packed(start=3.4028235e38) != packed(start=math.inf)
    whole = made_kernel("fill/fill.wgsl", T="i32").interface
    with pytest.raises(UnsupportedError, match="does not fit the 32 bits"):
        whole.pack(tuple({"words": 1, "start": 1 << 40, "step": 0}[name] for name in whole.param_names))
