"""The machine code of every kernel that a GPU would take, by the compiler of real GPUs: nothing spills, enough waves
fit, and loops that stream weights load whole vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from case_plans import CASES, plans

from hightide.formats.gguf import block_size
from hightide.graph.blob import Zeros
from hightide.ops.blocks.dispatch import NIBBLES
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.ops.choices import Choices
from hightide.ops.linear.routes import ACTIVATIONS
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.case_graph import CaseGraph
from hightide.tools.kernels.judged import judge_file
from hightide.tools.kernels.machine_code import Loop, MachineCode
from hightide.tools.kernels.null_device import compile_for
from hightide.tools.kernels.spirv_writer import write_spirv
from hightide.tools.kernels.target_gpus import GPUS, target_gpu
from hightide.tools.opened_file import open_file

pytest.importorskip("vulkan")
pytestmark = [pytest.mark.slow, pytest.mark.gpu]
FAMILIES = ("amd:navi21", "amd:navi31", "amd:gfx1201")
LEAST_WAVES = 8
PICKED = ("iq1", "iq2", "iq3", "tq1")  # four quants are a word somewhere: these loads are no vectors
KINDS = (*BLOCK_TYPES, "float32")
MODELS = Path(__file__).parents[1] / "models"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[Path]]:
    """The names of all kernels of all op cases by the routes of a GPU, and their SPIR-V."""
    found: dict[str, str] = {}
    choices = Choices(GPUS["amd:navi31"].traits)
    in_codes = replace(choices, chosen={ACTIVATIONS.name: "int8"})
    of_cases = (plan for case in CASES for plan in plans(CaseGraph(case, np.random.default_rng(7)), choices))
    for plan in (*of_cases, *large_products(choices), *large_products(in_codes)):
        for step in plan.steps:
            shader = step.dispatch.kernel.shader(step.dispatch.halves)
            found.setdefault(shader.text, shader.name)
    assert len(found) > 300 and sum(name.endswith("_large") for name in found.values()) == 2 * len(KINDS)
    assert sum("_int8_4" in name for name in found.values()) == 2 * len(NIBBLES)
    return list(found.values()), write_spirv(list(found), tmp_path_factory.mktemp("spirv"))


def large_products(choices: Choices) -> Iterator[Plan]:
    """Of many rows and columns, which cases are too small for."""
    for kind in KINDS:
        elements, size = (1, 4) if kind == "float32" else block_size(kind)
        for activation in ("", "silu"):
            b = GraphBuilder()
            x = b.input((1, 128, 256))
            weight = b.stored((4096, 256), kind, Zeros(4096 * 256 // elements * size))
            graph = b.graph(b.call("hightide.linear.default", x, weight, None, None, activation))
            given = [np.zeros((1, 128, 256), np.float32)]
            elements_of = InputElements(given, graph_inputs(graph, None, None))
            yield Planner(graph, choices=choices).plan([given[0].shape], elements_of)


def loops(code: MachineCode) -> Iterator[Loop]:
    waiting = list(code.loops)
    while waiting:
        loop = waiting.pop()
        yield loop
        waiting += loop.inner


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_spills_and_enough_waves_fit(name: str, kernels: tuple[list[str], list[Path]]) -> None:
    names, files = kernels
    codes = compile_for(target_gpu(name).family, files)
    bad = [
        (kernel, code.registers, code.spills, code.waves)
        for kernel, code in zip(names, codes, strict=True)
        if code.spills or code.waves < LEAST_WAVES
    ]
    assert bad == []
    streaming = [(kernel, code) for kernel, code in zip(names, codes, strict=True) if "_subgroups_" in kernel]
    assert len(streaming) > 20
    for kernel, code in streaming:
        loaded = sum(loop.own.loaded for loop in loops(code))
        loads = sum(loop.own.kinds.get("load", 0.0) for loop in loops(code))
        assert loads and loaded / loads >= (5 if kernel.startswith(PICKED) else 8), (kernel, loaded, loads)
    packed = [(kernel, code) for kernel, code in zip(names, codes, strict=True) if "_int8_" in kernel]
    for kernel, code in packed:  # four products to an instruction
        products = sum(loop.own.products for loop in loops(code))
        assert products > 3 * sum(loop.own.kinds.get("fma", 0.0) for loop in loops(code)), kernel


def test_a_model_is_judged_for_every_target() -> None:
    opened = open_file(MODELS / "llama.gguf", device="cpu")
    for gpu in GPUS.values():
        judged = judge_file(opened, gpu, [], {})
        prefill, decode = judged.levels
        assert decode.at["S"] == 1 and prefill.at["S"] > 1
        for level in judged.levels:
            assert level.rate is not None and level.rate > 0
            assert all(one.code.registers and one.time.total > 0 for one in level.dispatches)
            assert {one.code.lanes for one in level.dispatches} <= {64, 256, 1024}
            linears = [one for one in level.dispatches if "linear" in one.op and "norm" not in one.route]
            assert linears and all(one.code.main_loop is not None for one in linears)
            assert all(one.code.main_loop.own.products for one in linears if one.code.main_loop)


def test_routes_can_be_forced() -> None:
    opened = open_file(MODELS / "llama.gguf", device="cpu")
    level, gpu = {"S": 1, "pos": 8}, target_gpu("amd:navi31")
    usual, other = (judge_file(opened, gpu, [level], routes) for routes in ({}, {"linear.gemv": "split"}))
    assert {one.route for one in usual.levels[0].dispatches} != {one.route for one in other.levels[0].dispatches}
