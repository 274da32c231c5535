"""A part planned for an adapter, without building it: no buffers, no pipelines, no upload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hightide.errors import InputError
from hightide.graph.graph import Graph
from hightide.graph.symbols import Env
from hightide.ops.choices import Choices
from hightide.planning.explain import Explanation, explain_plan
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Plan
from hightide.runtime.device_routes import choices_for
from hightide.tools.inspect.graph_trace import Formulas, trace
from hightide.tools.inspect.listing import CallLine, list_graph
from hightide.tools.inspect.memory_report import Memory, memory_of
from hightide.tools.opened_file import Part
from hightide.traits import Traits
from hightide.units import counted

NO_ADAPTER = "no adapter (planned for a software one)"


@dataclass(frozen=True)
class Target:
    """What a part is planned for."""

    name: str
    choices: Choices
    max_binding: int = 128 << 20  # WebGPU's guarantee


def target_of(device: Any) -> Target:
    """An opened device, or None: the routes that a software adapter would take."""
    if device is None:
        return Target(NO_ADAPTER, Choices(Traits(software=True)))
    return Target(device.adapter.name, choices_for(device), device.max_binding)


class PlannedPart:
    """What a session of a part on a target would be."""

    def __init__(self, part: Part, target: Target, fused: bool = True) -> None:
        self.part, self.target = part, target
        self.planner = part.planner(target.choices, target.max_binding, fused)
        self.graph: Graph = self.planner.graph

    @cached_property
    def formulas(self) -> Formulas:
        return trace(self.part, self.graph)

    @cached_property
    def memory(self) -> Memory:
        return memory_of(self.planner, self.part.specs)

    @cached_property
    def lines(self) -> list[CallLine]:
        """Its op calls."""
        return list_graph(self.graph, self.formulas, self.part.names, self.planner.aliases.state)

    @property
    def summary(self) -> str:
        """`12 op calls`; of a part among others also where its inputs and outputs are in the method."""
        calls = counted(len(self.graph.calls), "op call")
        takes, gives = ", ".join(self.part.names), ", ".join(self.part.gives)
        return f"{calls}; takes {takes or 'nothing'}, gives {gives}" if gives else calls

    def plan_at(self, at: Mapping[str, int]) -> tuple[Plan, Env]:
        """The plan of a level, checked as a run would be; InputError if there is no such level."""
        return self.part.plan_at(self.planner, at)

    def plan_most(self) -> Plan:
        """At the level that is taken where nobody says; of a part that no run comes to, at the max dims."""
        try:
            return self.plan_at({})[0]
        except InputError:
            return self.planner.plan_max(MaxElements())

    def explain_at(self, at: Mapping[str, int]) -> Explanation:
        plan, env = self.plan_at(at)
        dims, _ = self.part.level_at(at)
        return explain_plan(self.planner, plan, env, dims, self.target.name)
