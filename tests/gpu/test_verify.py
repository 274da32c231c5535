"""Verifying finds planted faults and names the op; what is right passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from fake_choice import Same, dispatches
from llamas import INPUTS, small_llama
from planted import key_beyond, one_buffer_for, plant, wrong_scale
from schedules import INDEX, PROGRAMS, main_method

from hightide.errors import InputError
from hightide.gpu.compile_ahead import CompileAhead
from hightide.gpu.device import Adapter, Device
from hightide.gpu.pipelines import Pipelines, pipelines
from hightide.graph.graph import Graph
from hightide.graph.values import LiteralValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.builder import GraphBuilder
from hightide.ops.choices import CHOICES, Choice
from hightide.ops.contract import Context, Dispatch, Tensor
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.levels.level_sources import GraphSource
from hightide.tools.opened_file import Part, open_file
from hightide.tools.verify import other_routes
from hightide.tools.verify.compare import compare
from hightide.tools.verify.level_choice import levels_of
from hightide.tools.verify.part_verifier import PartVerifier, VerifySettings
from hightide.tools.verify.results import LevelResult
from hightide.tools.verify.verify_file import WantedLevels, verify_file
from hightide.wgsl.shader import Shader

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
MODELS = Path(__file__).parents[1] / "models"
PREFILL, LATER = {"S": 5, "pos": 0}, {"S": 3, "pos": 9}


def part_of(graph: Graph, **options: Any) -> Part:
    """A graph as a part of a program."""
    dynamic = tuple(options.get("dynamic", [True] * len(graph.inputs)))
    names = tuple(options.get("names", [f"in{n}" for n in range(len(graph.inputs))]))
    return Part("forward", graph, dynamic, names, GraphSource(graph, dynamic, names))


@pytest.fixture(scope="module")
def llama() -> Part:
    return part_of(small_llama(max_tokens=8, context=24), **INPUTS)


def looked_at(part: Part, device: Device, *levels: Mapping[str, int], **settings: Any) -> list[LevelResult]:
    """The part without fusing: kernels and ops as they are written in these tests; only the routes that it takes."""
    session = GpuSession(part.graph, device, part.dynamic, part.names)
    verifier = PartVerifier(part, session, VerifySettings(**{"routes": False, **settings}))
    return [verifier.level(at) for at in levels]


def first_wrong(results: list[LevelResult]) -> tuple[LevelResult, Any]:
    return next((result, result.culprit) for result in results if result.culprit is not None)


# ---- what is right


def test_a_llama_is_right_at_every_level(llama: Part, device: Device) -> None:
    results = looked_at(llama, device, PREFILL, LATER, {"S": 8, "pos": 0}, {"S": 1, "pos": 23})
    for result in results:
        assert result.passed, (result.culprit, result.problems)
        ran = [op for op in result.ops if op.alone is not None]
        assert len(ran) == len({step.call.index for step in plan_at(llama, device, result.at).steps})
        assert all(op.chained is not None and op.chained.max_rel < 1e-5 for op in ran)
        assert 0 < max(op.alone.max_rel for op in ran if op.alone) < 2e-6, (
            "float32 is not exact, and no worse than this"
        )
        assert len(result.outputs) == 1 and 0 < result.outputs[0].max_rel < 1e-5


def test_kernels_of_other_routes_are_compiled_beside(
    llama: Part, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Sequence[Shader]] = []

    class Told(CompileAhead):
        def __init__(self, adapter: Adapter, shaders: Sequence[Shader], count: int) -> None:
            begun.append(shaders)
            super().__init__(adapter, shaders, count)

    monkeypatch.setattr(other_routes, "CompileAhead", Told)
    monkeypatch.setattr(other_routes, "helpers", lambda adapter: 1)
    monkeypatch.setattr(other_routes, "ENOUGH_KERNELS", 1)
    monkeypatch.setattr(Pipelines, "has", lambda self, shader: False)  # other tests may have met them
    (result,) = looked_at(llama, device, PREFILL, routes=True)
    routes = {name for op in result.ops for other in op.others for name in other.routes}
    assert result.passed and {shader.name for shader in begun[0]} == routes
    assert pipelines(device).before_first is None and len(begun) == 1


FAST = ["llama_gqa", "slices", "partial", "counter", "value_shape", "llama_static"]


@pytest.mark.parametrize("name", FAST)
def test_a_program_passes(name: str, device: Device) -> None:
    check_program(PROGRAMS / f"{name}.pte", routes=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEX)
def test_every_program_passes_on_every_route(name: str, device: Device) -> None:
    if name == "wide":
        with pytest.raises(InputError, match="has nothing in method forward that runs on a GPU"):
            check_program(PROGRAMS / f"{name}.pte")
    else:
        check_program(PROGRAMS / f"{name}.pte")


# Together they have every op of the others that has routes to choose from.
ROUTED = ("deepseek2.gguf", "gemma2.gguf", "gemma3n.gguf", "gpt_oss.gguf", "lfm2.gguf", "llama.gguf", "phi2.gguf")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.glob("*.gguf")))
def test_every_gguf_model_passes(name: str, device: Device) -> None:
    check_program(MODELS / name, routes=name in ROUTED)


def check_program(path: Path, routes: bool = True) -> None:
    opened = open_file(path, method=main_method(path.stem))
    report = verify_file(opened, WantedLevels({}), VerifySettings(routes=routes), [None])
    assert report.passed, report.as_json()
    assert any(op.alone is not None for level in report.levels for op in level.ops)


# ---- planted faults

# name: (the fault: a kernel's text and what replaces it, or a change of attention's shape; a level where it shows)
FAULTS: dict[str, tuple[Any, dict[str, int]]] = {
    "a row beyond the live length": (("let start = row *", "let start = (row + 1u) *"), PREFILL),
    "a key beyond the live length": (key_beyond, LATER),
    "a key from the future": (("min(keys, p + 1u)", "min(keys, p + 2u)"), PREFILL),
    "a swapped head": (("k_start(kv_head)", "k_start(kv_head ^ 1u)"), PREFILL),
    "a wrong scale": (wrong_scale, LATER),
    "the cache one position too far": (
        ("store_k_cache(place * width", "store_k_cache((place + 1u) * width"),
        LATER,
    ),
    "a row written beyond the live length": (
        (
            "store_out(u32(at.y), load_x(u32(at.x)));",
            "store_out(u32(at.y), load_x(u32(at.x))); store_out(u32(at.y) + params.numel + 4u, load_x(u32(at.x)));",
        ),
        PREFILL,
    ),
    "keys written beyond the live length": (
        (
            "+ at % width, load_k(at));",
            "+ at % width, load_k(at)); store_k_cache((place + 1u) * width + at % width, load_k(at + params.keys));",
        ),
        {"S": 1, "pos": 2},
    ),
    "the wrong row of a table": (("params.all_rows - 1) -", "params.all_rows - 1) / 2 -"), PREFILL),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_kernel_is_found_and_named(
    fault: str, llama: Part, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, at = FAULTS[fault]
    planted = plant(monkeypatch, what)
    own = Device(device.adapter)
    result, culprit = first_wrong(looked_at(llama, own, at))
    expected = planted.first_call(plan_at(llama, own, at))
    assert (culprit.index, culprit.name) == (expected.index, expected.name)
    assert culprit.problem and not result.passed
    stale = any("reads beyond the live part" in hint for hint in culprit.hints)
    if "written beyond" in fault:
        state = f"elements of state {expected.args.get('k_cache')} that it must leave alone"
        assert (state if "keys" in fault else "words beyond the live part of its output") in culprit.problem
    else:
        # A key that is written one position too far leaves its own place unwritten.
        assert stale == ("beyond the live length" in fault or "cache" in fault), culprit.hints
        assert culprit.alone.bad and culprit.alone.worst is not None


def test_a_swapped_head_is_wrong_in_all_heads_and_a_future_key_not_in_the_last_row(llama: Part, device: Device) -> None:
    """The box around the wrong elements tells one fault from another."""
    for fault, box in (
        ("a swapped head", ((0, 0), (1, 4), (0, 3))),  # row 0 sees one key, whatever its head
        ("a key from the future", ((0, 0), (0, 3), (0, 3))),
    ):
        what, at = FAULTS[fault]
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, what)
            _, culprit = first_wrong(looked_at(llama, Device(device.adapter), at))
        assert culprit.alone.box[:3] == box, fault


def test_a_wrong_constant_is_found_and_named(llama: Part, device: Device) -> None:
    """One bit of one scale of one weight on the GPU."""
    session = GpuSession(llama.graph, device, llama.dynamic, llama.names)
    linears = [call for call in llama.graph.calls if "linear_q4gsw" in call.name]
    broken = linears[9]
    scales = llama.graph.values[broken.args["scales"]]
    assert isinstance(scales, TensorValue) and scales.constant is not None
    right = np.frombuffer(scales.constant.view(), np.float32)
    session.memory.write(scales.id, right[10:11] * np.float32(1.01), at=40)
    result = PartVerifier(llama, session, VerifySettings(routes=False)).level(PREFILL)
    assert result.culprit is not None and result.culprit.index == broken.index
    dims = ", ".join(map(str, scales.dims))
    assert any(
        f"its constant {scales.id} (float32 [{dims}]) is not on the GPU as in the file" in hint
        and "from byte 40 on" in hint
        for hint in result.culprit.hints
    ), result.culprit.hints
    wrong_columns = result.culprit.alone.box[-1] if result.culprit.alone else None
    assert wrong_columns == (10, 10), "scale 10 of the first group is that of column 10"


def test_a_constant_that_moves_an_output_by_less_than_its_tolerance_is_not_a_fault(llama: Part, device: Device) -> None:
    session = GpuSession(llama.graph, device, llama.dynamic, llama.names)
    broken = [call for call in llama.graph.calls if "linear_q4gsw" in call.name][9]
    scales = llama.graph.values[broken.args["scales"]]
    assert isinstance(scales, TensorValue) and scales.constant is not None
    right = np.frombuffer(scales.constant.view(), np.float32)
    session.memory.write(scales.id, right[10:11] * np.float32(1.0005), at=40)
    lenient = PartVerifier(llama, session, VerifySettings(tolerance=1e-2, routes=False)).level(PREFILL)
    assert lenient.passed and lenient.culprit is None
    strict = PartVerifier(llama, session, VerifySettings(routes=False)).level(PREFILL)
    assert not strict.passed and strict.culprit is not None and strict.culprit.index == broken.index


def test_memory_that_two_tensors_share_is_found_in_the_run_as_a_whole(
    llama: Part, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every op is right alone; together the residual is overwritten before it is added."""
    adds = [call for call in llama.graph.calls if call.name == "aten.add.Tensor"]
    residual, between = adds[0].out, next(c for c in llama.graph.calls if "sigmoid" in c.name).out
    one_buffer_for(monkeypatch, residual, between)
    (result,) = looked_at(llama, device, PREFILL)
    assert result.culprit is None and not result.passed
    (problem,) = result.problems
    assert "the run as a whole gives other bytes than its ops one by one, in output 0" in problem
    assert f"{adds[1]} is the first" in problem


def test_a_run_that_does_not_repeat_itself_is_found(
    llama: Part, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, count = GpuSession.run, iter(range(100))

    def unsteady(self: GpuSession, given: Any) -> list[np.ndarray]:
        return [array + np.float32(next(count) * 1e-6) for array in run(self, given)]

    monkeypatch.setattr(GpuSession, "run", unsteady)
    (result,) = looked_at(llama, device, PREFILL)
    assert result.problems == ("run 2 of the same inputs gives other bytes than run 1 in output 0",)


def test_a_pass_that_changes_the_meaning_is_found(llama: Part, device: Device) -> None:
    """The session runs another graph than the file's: one epsilon of the norms is 10."""
    norm = [call for call in llama.graph.calls if "rms_norm" in call.name][2]
    wrong = LiteralValue(len(llama.graph.values), 10.0)
    calls = [replace(c, args={**c.args, "eps": wrong.id}) if c is norm else c for c in llama.graph.calls]
    other = replace(llama.graph, values=(*llama.graph.values, wrong), calls=tuple(calls))
    session = GpuSession(other, device, llama.dynamic, llama.names)
    result = PartVerifier(llama, session, VerifySettings(routes=False)).level(PREFILL)
    assert result.culprit is None
    assert len(result.problems) == 1 and result.problems[0].startswith(
        "fusing changed what the program means: output 0"
    )


class Twice(Same):
    """2 x, by two routes, one of them wrong."""

    choice: ClassVar[Choice]

    def plan(self, ctx: Context, out: Tensor) -> Iterator[Dispatch]:
        factor = {"right": 2.0, "also_right": 2.0, "wrong": 3.0}[ctx.choose(self.choice)]
        yield from dispatches(ctx, "aten.mul.Scalar", self.x, factor, out=out)
        if ctx.choose(self.choice) != "right":  # twice the same, so that it counts as another route
            yield from dispatches(ctx, "aten.mul.Scalar", self.x, factor, out=out)

    @staticmethod
    def reference(x: np.ndarray) -> np.ndarray:
        return x * 2


def test_a_wrong_route_that_is_not_taken_is_found_and_named(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHOICES, "test.twice", None)  # put back what was there: nothing
    Twice.choice = Choice("test.twice", ("right", "also_right", "wrong"), default=lambda traits: "right")
    monkeypatch.setitem(REGISTRY, "test.twice.default", Twice)
    b = GraphBuilder()
    part = part_of(b.graph(b.call("test.twice.default", b.call("aten.relu.default", b.input((6, 8))))))
    (result,) = looked_at(part, device, {"S": 3} if "S" in part.symbols else {}, routes=True)
    assert result.culprit is None and not result.passed
    ((op, route),) = result.bad_routes
    assert (op.index, op.name, route.choice, route.option) == (1, "test.twice.default", "test.twice", "wrong")
    assert [other.option for other in op.others] == ["also_right", "wrong"]


def gated_q4(rows: int = 19, k: int = 64, n: int = 32) -> Part:
    """A 4-bit linear that writes silu(gate) * up."""
    rng = np.random.default_rng(4)
    b = GraphBuilder()
    codes = b.constant(rng.integers(0, 256, (n, k // 2), dtype=np.uint8))
    scales = b.constant(rng.uniform(0.01, 0.1, (k // 32, n)).astype(np.float32))
    return part_of(
        b.graph(b.call("hightide.linear_q4.default", b.input((rows, k)), codes, scales, 32, None, None, "silu"))
    )


def int8_route(result: LevelResult) -> Any:
    (found,) = [r for op in result.ops for r in op.others if (r.choice, r.option) == ("linear.activations", "int8")]
    return found


def test_8_bit_activations_are_compared_with_a_reference_in_8_bits(device: Device) -> None:
    (result,) = looked_at(gated_q4(), device, {}, routes=True)
    route = int8_route(result)
    assert result.passed and route.routes[0] == "activations_int8" and route.errors.max_rel < 2e-6


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("quotient(127.0, most), most", "quotient(126.0, most), most"),
        ("round(load_x(", "trunc(load_x("),
        pytest.param("factor.y * scales.least", "factor.y * scales.least * 0.99", marks=pytest.mark.slow),
        pytest.param("+ dot4I8Packed(odd0.w, high.w)", "+ dot4I8Packed(odd0.w, high.z)", marks=pytest.mark.slow),
    ],
    ids=["a step", "the rounding", "the offset", "a code"],
)
def test_a_fault_of_8_bit_activations_is_not_taken_for_their_rounding(
    device: Device, monkeypatch: pytest.MonkeyPatch, text: str, instead: str
) -> None:
    fault = plant(monkeypatch, (text, instead))
    (result,) = looked_at(gated_q4(), Device(device.adapter), {}, routes=True)
    assert fault.planted and result.culprit is None
    ((op, route),) = result.bad_routes
    assert (op.name, route.option) == ("hightide.linear_q4.default", "int8")


def test_a_model_that_takes_8_bit_activations_passes(
    llama: Part, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIGHTIDE_ROUTES", "linear.activations=int8")
    (result,) = looked_at(llama, device, PREFILL, routes=True)
    assert result.passed, result.problems
    taken = [op for op in result.ops if "activations_int8" in op.routes]
    assert taken and all(op.alone is not None and op.alone.max_rel < op.tolerance for op in taken)
    assert "f32" in {route.option for op in taken for route in op.others}


def plan_at(part: Part, device: Device, at: Mapping[str, int]) -> Any:
    return GpuSession(part.graph, device, part.dynamic, part.names).level(part.inputs_at(at))[1]


# ---- comparing


def test_rows_are_judged_by_their_own_size() -> None:
    want = np.ones((2, 32))
    want[0] *= 1e6
    got = want.copy()
    got[1, 5] = 1.001
    errors = compare(got, want, 1e-4)
    assert (errors.bad, errors.worst, errors.box) == (1, (1, 5), ((1, 1), (5, 5)))
    assert errors.max_rel == pytest.approx(1e-3) and (errors.got, errors.want) == (1.001, 1.0)


def test_nan_and_infinities_are_counted_on_both_sides() -> None:
    want = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    assert compare(want, want, 0).bad == 0
    got = np.array([np.nan, np.nan, np.inf, np.inf, 2.0])
    errors = compare(got, want, 1.0)
    assert (errors.bad, errors.nan, errors.inf, errors.max_rel) == (2, (2, 1), (2, 2), np.inf)


def test_integers_must_be_equal() -> None:
    errors = compare(np.array([1, 2, 3]), np.array([1, 2, 4]), 1.0)
    assert (errors.bad, errors.worst, errors.got, errors.want) == (1, (2,), 3, 4)


# ---- levels


def test_the_usual_levels_are_small_odd_later_and_the_max(llama: Part) -> None:
    levels = levels_of(llama, {})
    assert {"S": 8, "pos": 0} in levels and {"S": 7, "pos": 0} in levels
    assert any(at["pos"] > 0 for at in levels) and any(at["S"] == 1 for at in levels)
    assert levels_of(llama, {"S": (1, 5), "pos": (0, 3)}) == [
        {"S": 1, "pos": 0},
        {"S": 1, "pos": 3},
        {"S": 5, "pos": 0},
        {"S": 5, "pos": 3},
    ]
    assert levels_of(llama, {}, [{"S": 2, "pos": 7}]) == [{"S": 2, "pos": 7}]
