"""Kernels that report every access outside the live part of a tensor, and sessions with a guard behind every buffer.

A kernel's text is changed so that each index into a tensor is first compared with the number of elements that are
live at the level, in whole vec4s. One that is outside leaves a mark in the guard behind a tensor which is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from hightide.gpu.device import Device
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.kernel import Dispatch, Kernel, Tensor
from hightide.planning.planner import Plan, Planner, Step
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.words import POISON
from hightide.wgsl.preprocessor import Declared
from hightide.wgsl.shader import FIRST_BINDING, Interface, Shader

GUARD = 256  # bytes behind every tensor
PARAMS_SIZE = 512  # the limits need room behind a kernel's own parameters
_BYTES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2}
_BINDING = re.compile(r"@binding\((\d+)\) var<storage, \w+> (\w+): array<(.*)>;")


class GuardedDevice(Device):
    """Every storage buffer is larger than what it holds."""

    def buffer(self, size: int, usage: str = "STORAGE|COPY_DST|COPY_SRC", label: str = "") -> Any:
        guarded = label.startswith(("tensor", "shared"))
        return super().buffer(-(-size // 16) * 16 + GUARD if guarded else size, usage, label)


class BoundedPlanner(Planner):
    """Plans with kernels that check their indices."""

    def plan(self, input_dims: Sequence[Dims], env: Env) -> Plan:
        return _bounded_plan(super().plan(input_dims, env))

    def plan_max(self, env: Env) -> Plan:
        return _bounded_plan(super().plan_max(env))


class BoundedKernel(Kernel):
    """A kernel that marks accesses outside `limits`, which are its last parameters."""

    def shader(self, halves: frozenset[str] = frozenset()) -> Shader:
        return _bounded_shader(self, halves)


@contextmanager
def bounded_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions that are built meanwhile, on a GuardedDevice, check their indices."""
    with monkeypatch.context() as patched:
        for module in ("hightide.gpu.params", "hightide.gpu.pipelines"):
            patched.setattr(f"{module}.PARAMS_SIZE", PARAMS_SIZE)
        patched.setattr("hightide.runtime.gpu_session.Planner", BoundedPlanner)
        patched.setattr("hightide.runtime.step_block.SMALL_INPUT", 0)  # each input has a guard of its own
        yield


def forget_kernels() -> None:
    """The next session reads its kernels' text again."""
    _bounded_shader.cache_clear()


class Guards:
    """What must not change in a run: the guards and the constants."""

    def __init__(self, session: GpuSession) -> None:
        self.session = session

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        session = self.session
        session.poison()
        for id in session.memory.plan.own:
            buffer = session.memory.region(id).buffer
            session.device.write(buffer, buffer.size - GUARD, np.full(GUARD // 4, POISON, np.uint32))
        before = self._contents()
        outputs = session.run(inputs)
        self._compare(before, inputs)
        return outputs

    def _contents(self) -> dict[int, np.ndarray]:
        memory = self.session.memory
        return {id: np.frombuffer(memory.device.read(memory.region(id).buffer), np.uint32) for id in memory.plan.own}

    def _compare(self, before: dict[int, np.ndarray], inputs: list[np.ndarray]) -> None:
        memory, graph = self.session.memory, self.session.graph
        for buffer in memory.buffers():
            if buffer is memory.step.buffer:
                continue  # no kernel writes to it
            guard = np.frombuffer(memory.device.read(buffer), np.uint32)[-GUARD // 4 :]
            changed = guard[guard != POISON]
            routes = {step.dispatch.kernel.name for step in self.session.level(inputs)[1].steps}
            assert not changed.size, f"{buffer.label}: {mark_of(changed)} by one of {routes}"
        for id, now in self._contents().items():
            if id not in memory.aliases.state and id not in graph.inputs:
                assert (now == before[id]).all(), f"constant {id} was written to"


def mark_of(changed: np.ndarray) -> str:
    """What a guard's words say: the number of the binding, as the kernel declares them, by its value's type."""
    word = int(changed[-1])
    for value in (word, float(np.uint32(word).view(np.float32)), float(np.uint32(word).view("2float16")[1])):
        if 1 <= value <= 16 and value == int(value):
            return f"an index into binding {int(value) - 1} is outside its live part"
    return f"a guard was overwritten with {word:#x}"


def _bounded_plan(plan: Plan) -> Plan:
    return replace(plan, steps=tuple(Step(s.call, _bounded(s.dispatch, plan), s.op) for s in plan.steps))


def _bounded(dispatch: Dispatch, plan: Plan) -> Dispatch:
    kernel = _bounded_kernel(dispatch.kernel)
    sizes = []
    for bound in (*dispatch.reads, *dispatch.writes):
        nbytes = bound.nbytes if isinstance(bound, Tensor) else plan.scratch_sizes[bound]
        sizes.append(-(-nbytes // 16) * 16)
    elements = _element_bytes(dispatch.kernel, dispatch.halves)
    limits = tuple(size // each for size, each in zip(sizes, elements, strict=True))
    return Dispatch(kernel, dispatch.groups, (*dispatch.params, limits), dispatch.reads, dispatch.writes)


@cache
def _bounded_kernel(kernel: Kernel) -> BoundedKernel:
    declared = kernel.interface
    words = -(-len(declared.binding_names) // 4)
    limits = Declared("limits", f"array<vec4<u32>, {words}>", declared.params[-1].line)
    params = (*declared.params, limits)
    with patch("hightide.wgsl.shader.PARAMS_SIZE", PARAMS_SIZE):  # not longer: interfaces of other kernels are kept
        interface = Interface(declared.file, params, declared.reads, declared.writes, declared.absent)
    return BoundedKernel(kernel.name, kernel.file, kernel.constants, interface)


@cache
def _element_bytes(kernel: Kernel, halves: frozenset[str]) -> tuple[int, ...]:
    found = {int(number): held for number, _, held in _BINDING.findall(kernel.shader(halves).text)}
    return tuple(_held_bytes(found[number]) for number in sorted(found))


def _held_bytes(held: str) -> int:
    vector = re.fullmatch(r"vec(\d)<(\w+)>", held)
    return int(vector[1]) * _BYTES[vector[2]] if vector else _BYTES[held]


@cache
def _bounded_shader(kernel: BoundedKernel, halves: frozenset[str]) -> Shader:
    whole = Kernel.shader(kernel, halves)
    head, _, rest = whole.text.partition("struct Params {")
    fields, _, body = rest.partition("\n}\n")
    bindings = {name: (int(number), held) for number, name, held in _BINDING.findall(whole.text)}
    written = kernel.interface.write_names[-1]
    held = bindings[written][1]
    lines = []
    for line in body.splitlines():
        code, comment, rest = line.partition("//")
        for name in bindings:
            code = _with_checked_indices(code, name)
        lines.append(code + comment + rest)
    checks = []
    for name, (number, _) in bindings.items():
        n = number - FIRST_BINDING
        mark = f"{written}[arrayLength(&{written}) - 1u] = {held}({n + 1});"
        checks.append(
            f"fn in_{name}_(i: u32) -> u32 {{ if (i >= params.limits[{n // 4}][{n % 4}]) {{ {mark} }} return i; }}"
        )
    limits = kernel.interface.params[-1]
    fields += f"\n    limits: {limits.type},"
    text = "\n".join([f"{head}struct Params {{{fields}\n}}", *lines, *checks, ""])
    return replace(whole, text=text, interface=kernel.interface, origins=(("", 0),) * len(text.splitlines()))


def _with_checked_indices(code: str, name: str) -> str:
    """`name[i]` as `name[in_name_(u32(i))]`, wherever it stands."""
    start = 0
    while found := re.compile(rf"(?<![\w.]){name}\[").search(code, start):
        depth, end = 1, found.end()
        while depth:
            depth += {"[": 1, "]": -1}.get(code[end], 0)
            end += 1
        code = f"{code[: found.end()]}in_{name}_(u32({code[found.end() : end - 1]})){code[end - 1 :]}"
        start = found.end()
    return code
