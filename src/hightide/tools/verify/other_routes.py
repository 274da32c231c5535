"""The routes that the calls of a plan could take but do not: every option of every choice, forced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hightide.errors import HightideError
from hightide.gpu.compile_ahead import CompileAhead, helpers
from hightide.gpu.device import Device
from hightide.gpu.pipelines import pipelines
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.choices import CHOICES
from hightide.ops.contract import Dispatch
from hightide.planning.planner import Plan
from hightide.runtime.device_routes import forcing
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.ready_plans import shader_of

ENOUGH_KERNELS = 8  # that are new, to open another device for


@dataclass(frozen=True)
class Route:
    """One call's dispatches under one option."""

    choice: str
    option: str
    exact: bool  # its numbers are those of the route that is taken
    plan: Plan
    dispatches: tuple[Dispatch, ...]


def other_routes(
    session: GpuSession, dims: Sequence[Dims], env: Env, taken: Mapping[int, Sequence[Dispatch]]
) -> dict[int, list[Route]]:
    """By call: the options that give other dispatches than those `taken`, each set of dispatches once.

    Calls that are alike (the layers of a model) share their kernels and parameters, so one of them stands for all.
    """
    known = {_signature(dispatches) for dispatches in taken.values()}
    found: dict[int, list[Route]] = {}
    traits = session.planner.choices.traits
    for choice in CHOICES.values():
        exact = choice.exact and session.planner.choices.exact  # else which rows are rounded may depend on it
        for option in choice.options:
            if not choice.possible(traits, option):
                continue
            try:
                plan = forcing(session.planner, {choice.name: option}).plan(dims, env)
            except HightideError:  # an option that this shape does not allow
                continue
            calls: dict[int, list[Dispatch]] = {}
            for step in plan.steps:
                calls.setdefault(step.call.index, []).append(step.dispatch)
            for call, dispatches in calls.items():
                signature = _signature(dispatches)
                if signature not in known:
                    known.add(signature)
                    found.setdefault(call, []).append(Route(choice.name, option, exact, plan, tuple(dispatches)))
    return found


@contextmanager
def compiled_beside(device: Device, routes: Iterable[Route]) -> Iterator[None]:
    """Have the kernels of these compiled on other cores as well, where that helps, while they are met in this order."""
    own, count = pipelines(device), helpers(device.adapter)
    shaders = dict.fromkeys(shader_of(dispatch) for route in routes for dispatch in route.dispatches)
    new = [shader for shader in shaders if not own.has(shader)]
    if not count or len(new) < ENOUGH_KERNELS:
        yield
        return
    ahead = CompileAhead(device.adapter, new, count)
    ahead.start()
    own.before_first = ahead.meet
    try:
        yield
    finally:
        own.before_first = None
        ahead.stop()


def _signature(dispatches: Sequence[Dispatch]) -> Any:
    return tuple((d.kernel, d.params, str(d.groups)) for d in dispatches)
