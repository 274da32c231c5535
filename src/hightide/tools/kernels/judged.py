"""A file's kernels on a GPU that need not be there: each dispatch of a level with its machine code and its time."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hightide.errors import UnsupportedError
from hightide.graph.symbols import evaluate
from hightide.ops.choices import Choices
from hightide.ops.cost import Cost
from hightide.planning.costs import cost_of
from hightide.planning.planner import Planner, Step
from hightide.tools.kernels.machine_code import MachineCode
from hightide.tools.kernels.null_device import check_package, compile_for
from hightide.tools.kernels.spirv_writer import write_spirv
from hightide.tools.kernels.target_gpus import TargetGpu
from hightide.tools.kernels.time_model import DispatchTime, predict
from hightide.tools.opened_file import OpenedFile, Part, default_levels
from hightide.wgsl.shader import Shader


@dataclass(frozen=True)
class JudgedDispatch:
    """A dispatch, the machine code that it runs, and its time as predicted."""

    op: str
    route: str
    groups: int
    code: MachineCode
    cost: Cost
    time: DispatchTime


@dataclass(frozen=True)
class DispatchGroup:
    """Dispatches of one op with the same machine code."""

    dispatches: tuple[JudgedDispatch, ...]

    @property
    def slowest(self) -> JudgedDispatch:
        return max(self.dispatches, key=lambda one: one.time.total)

    @property
    def name(self) -> str:
        return f"{self.slowest.op.removesuffix('.default')} · {self.slowest.route}"

    @property
    def microseconds(self) -> float:
        return sum(one.time.total for one in self.dispatches)

    @property
    def rate(self) -> float:
        """GB/s that have to move."""
        return sum(one.cost.bytes for one in self.dispatches) / self.microseconds / 1e3


@dataclass(frozen=True)
class JudgedLevel:
    at: Mapping[str, int]
    dispatches: tuple[JudgedDispatch, ...]

    @property
    def name(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.at.items()) or "max dims"

    @property
    def groups(self) -> list[DispatchGroup]:
        """The longest first."""
        found: dict[tuple[str, int], list[JudgedDispatch]] = {}
        for one in self.dispatches:
            found.setdefault((one.op, id(one.code)), []).append(one)
        return sorted((DispatchGroup(tuple(group)) for group in found.values()), key=lambda group: -group.microseconds)

    @property
    def bounds(self) -> list[tuple[str, float]]:
        """The share of the time that each limit bounds, the largest first."""
        shares: dict[str, float] = {}
        for one in self.dispatches:
            shares[one.time.bound] = shares.get(one.time.bound, 0.0) + one.time.total / self.microseconds
        return sorted(shares.items(), key=lambda pair: -pair[1])

    @property
    def microseconds(self) -> float:
        return sum(one.time.total for one in self.dispatches)

    @property
    def rate(self) -> float | None:
        """Tokens per second, if the level has tokens."""
        tokens = self.at.get("S")
        return tokens / self.microseconds * 1e6 if tokens and self.microseconds else None


@dataclass(frozen=True)
class KernelReport:
    file: str
    gpu: TargetGpu
    levels: tuple[JudgedLevel, ...]


def judge_file(
    opened: OpenedFile, gpu: TargetGpu, levels: Sequence[Mapping[str, int]], routes: Mapping[str, str]
) -> KernelReport:
    """Every dispatch of the file's parts at these levels, or a prefill and a decode step; `routes` are forced."""
    if not opened.parts:
        raise UnsupportedError(f"{opened.path.name}: method {opened.method} has no delegate, and so no kernels")
    choices = Choices(gpu.traits, dict(routes))
    planners = [(part, part.planner(choices, gpu.max_binding)) for part in opened.parts]
    levels = levels or default_levels(opened.parts[0].symbols)
    planned = [(level, [_steps(part, planner, level) for part, planner in planners]) for level in levels]
    shaders = {_shader(step): None for _, parts in planned for steps in parts for step, _, _ in steps}
    codes = dict(zip(shaders, compiled([shader.text for shader in shaders], gpu.family), strict=True))
    judged = []
    for level, parts in planned:
        at = {name: value for part in opened.parts for name, value in part.level(level).items()}
        dispatches = tuple(_dispatch(step, groups, cost, codes, gpu) for steps in parts for step, groups, cost in steps)
        judged.append(JudgedLevel(at, dispatches))
    return KernelReport(opened.path.name, gpu, tuple(judged))


def compiled(texts: Sequence[str], family: str) -> list[MachineCode]:
    """The machine code of WGSL texts for a family of GPUs."""
    check_package()  # before the longer part of the work
    with tempfile.TemporaryDirectory() as folder:
        return compile_for(family, write_spirv(texts, Path(folder)))


def _steps(part: Part, planner: Planner, level: Mapping[str, int]) -> list[tuple[Step, int, Cost]]:
    """The dispatches of a level that have work to do, with their workgroups."""
    plan, env = part.plan_at(planner, level)
    steps = ((step, int(evaluate(step.dispatch.groups, env)), cost_of(step, env, plan)) for step in plan.steps)
    return [(step, groups, cost) for step, groups, cost in steps if groups > 0]


def _shader(step: Step) -> Shader:
    return step.dispatch.kernel.shader(step.dispatch.halves)


def _dispatch(
    step: Step, groups: int, cost: Cost, codes: Mapping[Shader, MachineCode], gpu: TargetGpu
) -> JudgedDispatch:
    shader = _shader(step)
    code = codes[shader]
    return JudgedDispatch(step.call.name, shader.name, groups, code, cost, predict(code, gpu, groups, cost))
