"""What the op calls of a plan need of an adapter: kernels that give the right answer together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

from hightide.graph.graph import OpCall
from hightide.planning.planner import Plan
from hightide.runtime.ready_plans import shader_of
from hightide.wgsl.shader import Shader


@dataclass(frozen=True)
class Need:
    """An op, and the kernels that its dispatches run, in order and each once."""

    op: str
    shaders: tuple[Shader, ...]

    @property
    def routes(self) -> str:
        """The kernels' names."""
        return ", ".join(dict.fromkeys(shader.name for shader in self.shaders))

    @property
    def key(self) -> str:
        """Of the kernels' text: a verdict on other text says nothing."""
        return _key(self)


def needs_of(plan: Plan) -> dict[Need, OpCall]:
    """The needs of a plan, each with the first call that has it."""
    kernels: dict[OpCall, dict[Shader, None]] = {}
    for step in plan.steps:
        kernels.setdefault(step.call, {})[shader_of(step.dispatch)] = None
    found: dict[Need, OpCall] = {}
    for call, shaders in kernels.items():
        found.setdefault(Need(call.name, tuple(shaders)), call)
    return found


def needs_of_all(plans: Iterable[Plan]) -> set[Need]:
    return {need for plan in plans for need in needs_of(plan)}


@cache
def _key(need: Need) -> str:
    digest = sha256(need.op.encode())
    for shader in need.shaders:
        digest.update(b"\0" + shader.text.encode())
    return digest.hexdigest()[:24]
