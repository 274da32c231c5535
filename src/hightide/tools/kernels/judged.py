"""A file's kernels on a GPU that need not be there: each dispatch of a level with its machine code and its time."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hightide.errors import UnsupportedError
from hightide.fuse.half_storage import held
from hightide.fuse.large_constants import split_large
from hightide.graph.symbols import evaluate
from hightide.ops.choices import Choices
from hightide.ops.cost import Cost
from hightide.planning.costs import cost_of
from hightide.planning.planner import Planner, Step
from hightide.runtime.build import fused
from hightide.tools.kernels.machine_code import MachineCode
from hightide.tools.kernels.null_device import compile_for
from hightide.tools.kernels.spirv_writer import write_spirv
from hightide.tools.kernels.target_gpus import TargetGpu
from hightide.tools.kernels.time_model import DispatchTime, predict
from hightide.tools.opened_file import OpenedFile, Part
from hightide.wgsl.shader import Shader


@dataclass(frozen=True)
class JudgedDispatch:
    op: str
    route: str
    groups: int
    lanes: int  # of a workgroup
    code: MachineCode
    cost: Cost
    time: DispatchTime


@dataclass(frozen=True)
class JudgedLevel:
    at: Mapping[str, int]
    dispatches: tuple[JudgedDispatch, ...]

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
    """Every dispatch of the file's parts at these levels; `routes` are forced."""
    if not opened.parts:
        raise UnsupportedError(f"{opened.path.name}: method {opened.method} has no delegate, and so no kernels")
    planners = [(part, _planner(part, gpu, routes)) for part in opened.parts]
    planned = [(level, [_steps(part, planner, level) for part, planner in planners]) for level in levels]
    shaders = {_shader(step): None for _, parts in planned for steps in parts for step, _, _ in steps}
    codes = dict(zip(shaders, compiled([shader.text for shader in shaders], gpu.family), strict=True))
    judged = []
    for level, parts in planned:
        at = {name: value for part in opened.parts for name, value in part.level(level).items()}
        dispatches = tuple(_dispatch(step, groups, cost, codes, gpu) for steps in parts for step, groups, cost in steps)
        judged.append(JudgedLevel(at, dispatches))
    return KernelReport(opened.path.name, gpu, tuple(judged))


def default_levels(opened: OpenedFile) -> list[dict[str, int]]:
    """The decode step after 128 tokens and the prefill of as many, or the max dims of what is no language model."""
    symbols = opened.parts[0].symbols if opened.parts else {}
    if "S" not in symbols:
        return [{}]
    tokens, position = min(128, symbols["S"]), min(128, symbols.get("pos", 0))
    there = {"pos": position} if "pos" in symbols else {}
    return [{"S": 1, **there}, {"S": tokens, **dict.fromkeys(there, 0)}]


def compiled(texts: Sequence[str], family: str) -> list[MachineCode]:
    """The machine code of WGSL texts for a family of GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        return compile_for(family, write_spirv(texts, Path(folder)))


def _planner(part: Part, gpu: TargetGpu, routes: Mapping[str, str]) -> Planner:
    traits = gpu.traits
    graph = split_large(held(fused(part.graph), traits, None, part.half_caches(traits)), gpu.max_binding)
    return Planner(graph, scratch_limit=gpu.max_binding, choices=Choices(traits, dict(routes)))


def _steps(part: Part, planner: Planner, level: Mapping[str, int]) -> list[tuple[Step, int, Cost]]:
    """The dispatches of a level that have work to do, with their workgroups."""
    dims, env = part.level_at(level)
    plan = planner.plan(dims, env)
    steps = ((step, int(evaluate(step.dispatch.groups, env)), cost_of(step, env, plan)) for step in plan.steps)
    return [(step, groups, cost) for step, groups, cost in steps if groups > 0]


def _shader(step: Step) -> Shader:
    return step.dispatch.kernel.shader(step.dispatch.halves)


def lanes_of(text: str) -> int:
    """Of a workgroup, as WGSL says it."""
    found = re.search(r"@workgroup_size\(([\d, ]+)\)", text)
    return math.prod(int(size) for size in found[1].split(",") if size.strip()) if found else 1


def _dispatch(
    step: Step, groups: int, cost: Cost, codes: Mapping[Shader, MachineCode], gpu: TargetGpu
) -> JudgedDispatch:
    shader = _shader(step)
    code, lanes = codes[shader], lanes_of(shader.text)
    time = predict(code, gpu, groups, lanes, cost)
    return JudgedDispatch(step.call.name, shader.name, groups, lanes, code, cost, time)
