"""Elementwise ops: one declaration gives arguments, kernels for every form of input, and a reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hightide.errors import UnsupportedError
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.builder import GraphBuilder
from hightide.ops.contract import Dispatch
from hightide.ops.elementwise.expressions import floats, numbers
from hightide.ops.elementwise.template import binary, unary
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Planner
from hightide.runtime.cpu_session import CpuSession


@pytest.fixture
def registered() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def dispatch(builder: GraphBuilder, out: Any) -> Dispatch:
    (step,) = Planner(builder.graph(out)).plan_max(MaxElements()).steps
    return step.dispatch


def constants(made: Dispatch) -> dict[str, Any]:
    return dict(made.kernel.constants)


def test_an_op_is_one_line(registered: None) -> None:
    unary("test_cube", numbers("a * a * a"), lambda a: a**3)
    binary("test.lerp.default", floats("a + rate * (b - a)"), lambda a, b, rate: a + rate * (b - a), rate=0.5)
    lerp = REGISTRY["test.lerp.default"]
    assert [(a.name, a.default) for a in arguments_of(lerp)][2:] == [("rate", 0.5)] and lerp.family == "elementwise"
    b = GraphBuilder()
    x, y = b.input((2, 3)), b.input((3,))
    out = b.call("test.lerp.default", b.call("aten.test_cube.default", x), y, 0.25)
    (cube, mixed) = (step.dispatch for step in Planner(b.graph(out)).plan_max(MaxElements()).steps)
    assert "let result = a * a * a;" in cube.kernel.shader().text
    assert "let result = a + rate * (b - a);" in mixed.kernel.shader().text
    assert (cube.kernel.name, mixed.kernel.name) == ("elementwise", "elementwise_broadcast")
    given = [np.full((2, 3), 2, np.float32), np.zeros(3, np.float32)]
    assert CpuSession(b.graph(out)).run(given)[0].tolist() == [[6] * 3] * 2


def test_inputs_are_flat_broadcast_or_numbers() -> None:
    b = GraphBuilder()
    made = dispatch(b, b.call("aten.add.Tensor", b.input((4, 6)), b.input((6,)), 3))
    assert made.kernel.interface.param_names == ("numel", "dims", "b_strides", "alpha")
    assert made.params == (24, (1, 1, 1, 1, 1, 1, 4, 6), (0, 0, 0, 0, 0, 0, 0, 1), 3.0)
    assert {key: constants(made)[key] for key in ("KIND0", "SPREAD0", "KIND1", "SPREAD1", "KIND2")} == {
        "KIND0": "f32", "SPREAD0": "flat", "KIND1": "f32", "SPREAD1": "each", "KIND2": "number",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dims", "spread"), [((8,), "fours"), ((4, 1), "once"), ((1,), "once"), ((), "once"), ((3, 1, 8), "fours")]
)
def test_rows_of_whole_fours_are_read_by_fours(dims: tuple[int, ...], spread: str) -> None:
    b = GraphBuilder()
    made = dispatch(b, b.call("aten.add.Tensor", b.input((3, 4, 8)), b.input(dims)))
    assert constants(made)["SPREAD1"] == spread


def test_a_tensor_that_is_given_twice_is_bound_once() -> None:
    b = GraphBuilder()
    x = b.input((4,))
    made = dispatch(b, b.call("aten.mul.Tensor", x, x))
    assert (
        len(made.reads) == 1 and "fn b_of(i: u32) -> vec4<f32> {\n    return a_of(i);\n}" in made.kernel.shader().text
    )


def test_what_an_expression_does_not_name_is_not_read() -> None:
    b = GraphBuilder()
    made = dispatch(b, b.call("aten.copy.default", b.input((4,)), b.input((4,), "int32"), False))
    assert made.kernel.interface.read_names == ("b",)


@pytest.mark.parametrize(
    ("name", "types", "out", "compute"),
    [
        ("aten.mul.Tensor", ("int32", "int64"), "int32", "i32"),
        ("aten.mul.Tensor", ("int32", "float16"), "float16", "f32"),
        ("aten.mul.Tensor", ("bool", "bool"), "bool", "i32"),
        ("aten.div.Tensor", ("int32", "int32"), "float32", "f32"),
        ("aten.lt.Tensor", ("int8", "int8"), "bool", "i32"),
        ("aten.lt.Tensor", ("float32", "float32"), "bool", "f32"),
        ("aten.bitwise_and.Tensor", ("bool", "bool"), "bool", "bool"),
        ("aten.bitwise_and.Tensor", ("uint8", "int32"), "int32", "i32"),
        ("aten.logical_and.default", ("float32", "int32"), "bool", "bool"),
        ("aten.remainder.Tensor", ("int32", "float32"), "float32", "f32"),
        ("aten.remainder.Tensor", ("uint8", "int32"), "int32", "i32"),
        ("aten.clamp.Tensor", ("int32", "float32"), "float32", "f32"),
        ("aten.bitwise_left_shift.Tensor", ("int8", "int32"), "int32", "i32"),
    ],
)
def test_the_type_that_is_computed_in(name: str, types: tuple[str, str], out: str, compute: str) -> None:
    b = GraphBuilder()
    made = dispatch(b, b.call(name, b.input((4,), types[0]), b.input((4,), types[1]), dtype=out))
    assert constants(made)["C"] == compute


def test_types_without_a_form_are_refused() -> None:
    for dtype, message in (("float32", "it has no form in f32, only in i32, bool"), ("int16", "no form for int16")):
        b = GraphBuilder()
        out = b.call("aten.bitwise_not.default", b.input((4,), dtype), dtype=dtype)
        with pytest.raises(UnsupportedError, match=rf"op 0 \(aten.bitwise_not.default\): .*{message}"):
            Planner(b.graph(out)).plan_max(MaxElements())


def test_a_shift_of_floats_is_refused() -> None:
    b = GraphBuilder()
    out = b.call("aten.bitwise_left_shift.Tensor", b.input((4,)), b.input((4,), "int32"))
    with pytest.raises(UnsupportedError, match="it has no form in f32, only in i32"):
        Planner(b.graph(out)).plan_max(MaxElements())


def test_a_float_tensor_does_not_fill_integers() -> None:
    """Integers over 2^24 would be rounded on the way."""
    b = GraphBuilder()
    out = b.call("aten.masked_fill.Tensor", b.input((4,), "int32"), b.input((4,), "bool"), b.input(()), dtype="int32")
    with pytest.raises(UnsupportedError, match="filling int32 with a float32 tensor has no kernel"):
        Planner(b.graph(out)).plan_max(MaxElements())
