"""Faults planted in kernels and in memory, for tests that must find them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from hightide.gpu.device import Adapter, Device
from hightide.graph.aliases import Aliases
from hightide.graph.graph import Graph, OpCall
from hightide.ops.attention.steps import Attention, attend
from hightide.ops.contract import Context, Dispatch, Kernel, Scratch
from hightide.planning.memory import MemoryPlan, plan_memory
from hightide.planning.planner import Plan
from hightide.wgsl.shader import Shader


def change_kernels(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> Callable[[Kernel], Shader]:
    """Every kernel that is compiled from now on has the text that `change` makes of its own; what gives that one."""
    whole, made = Kernel.shader, {}

    def changed(kernel: Kernel, halves: frozenset[str] = frozenset()) -> Shader:
        shader = whole(kernel, halves)
        if shader not in made:
            text = change(shader.text)
            made[shader] = replace(shader, text=text, origins=(("", 0),) * len(text.splitlines()))
        return made[shader]

    monkeypatch.setattr(Kernel, "shader", changed)
    return whole


class KernelFault:
    """`text` of every kernel that has it is `instead`; to be built on a Device of its own, which compiles once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str, instead: str) -> None:
        self.text = text
        self.planted = False

        def faulty(source: str) -> str:
            self.planted = self.planted or text in source
            return source.replace(text, instead)

        self.whole = change_kernels(monkeypatch, faulty)

    def first_call(self, plan: Plan) -> OpCall:
        """The first op of a plan that runs a kernel with the fault."""
        assert self.planted, "the kernel's text has changed: plant the fault anew"
        return next(step.call for step in plan.steps if self.text in self.whole(step.dispatch.kernel).text)


class AttentionFault:
    """Attention planned for something else than it is: `change` alters what every dispatch is made from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: Callable[[Attention], Attention]) -> None:
        self.planted = False

        def wrong(ctx: Context, attention: Attention) -> Iterator[Dispatch]:
            self.planted = True
            return attend(ctx, change(attention))

        for name, module in list(sys.modules.items()):
            if name.startswith("hightide.ops.attention.") and getattr(module, "attend", None) is attend:
                monkeypatch.setattr(module, "attend", wrong)

    def first_call(self, plan: Plan) -> OpCall:
        assert self.planted, "attention is planned elsewhere now: plant the fault anew"
        return next(step.call for step in plan.steps if "sdpa" in step.call.name)


def plant(monkeypatch: pytest.MonkeyPatch, fault: Any) -> KernelFault | AttentionFault:
    """A change of what attention is made from, or a kernel's text and what replaces it."""
    return AttentionFault(monkeypatch, fault) if callable(fault) else KernelFault(monkeypatch, *fault)


def key_beyond(attention: Attention) -> Attention:
    """One key more than there are."""
    return replace(attention, added=attention.added + 1, causal=False)


def wrong_scale(attention: Attention) -> Attention:
    return replace(attention, scale=attention.scale * 1.001)


def one_buffer_for(monkeypatch: pytest.MonkeyPatch, one: int, other: int) -> None:
    """Memory planned wrongly: two tensors that live at the same time share a buffer."""

    def wrong(graph: Graph, aliases: Aliases, scratch: dict[Scratch, int]) -> MemoryPlan:
        plan = plan_memory(graph, aliases, scratch)
        new = len(plan.shared_sizes)
        shared = {**plan.shared, aliases.root[one]: new, aliases.root[other]: new}
        return replace(plan, shared=shared, shared_sizes=(*plan.shared_sizes, max(plan.shared_sizes)))

    monkeypatch.setattr("hightide.runtime.session_plan.plan_memory", wrong)


class WrongDriver:
    """A device whose compiler spoils the kernels of some names (all of them, or those whose text `when` picks).

    In what it compiles instead, neighbouring elements change places. Programs and models that are loaded from now on
    run on it.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        adapter: Adapter,
        names: Callable[[str], bool],
        when: Callable[[str], bool] = lambda text: True,
    ) -> None:
        self.device = Device(adapter)
        self.spoiled: set[str] = set()
        compile_module = self.device.shader_module

        def wrong(text: str, label: str) -> Any:
            if names(label) and when(text):
                changed = swapped_stores(text)
                assert changed != text, f"{label} stores nothing that can be spoiled"
                self.spoiled.add(label)
                text = changed
            return compile_module(text, label)

        monkeypatch.setattr(self.device, "shader_module", wrong)
        monkeypatch.setattr("hightide.gpu.device.open_device", lambda adapter: self.device)


def swapped_stores(text: str) -> str:
    """A kernel that stores every element where its neighbour belongs, and another id than it found."""
    text = re.sub(r"(\w+\[\w+\] = select\()(i32\(\w+\)),", r"\1(\2 ^ 1),", text)
    return re.sub(r"(fn store_\w+\(i: u32, value: [^)]*\) \{ \w+\[)i\]", r"\1i ^ 1u]", text)
