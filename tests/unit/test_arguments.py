"""Arguments of ops: as classes declare them, and as calls of graphs fit them, or do not."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from hightide.errors import UnsupportedError
from hightide.graph.graph import FileCall, GraphFile
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops.arguments import REQUIRED, arguments_of, ignores, named
from hightide.ops.binding import bind_graph
from hightide.ops.contract import REGISTRY, Int, Op, Tensor


class Base(Op):
    x: Tensor
    kind: ClassVar[str] = "base"


@ignores("dtype", "layout")
class Sample(Base):
    """One argument of every kind."""

    sizes: tuple[Int, ...]
    weight: Tensor | None
    scale: float = 1.0
    keep: bool = False
    mode: str = "none"

    reference = staticmethod(lambda x, scale: x * scale)


VALUES: list[Value] = [
    TensorValue(0, (4,), "float32", "float32"),
    SymIntValue(1, 0),
    ListValue(2, (1, 1)),
    ListValue(3, (0, 0)),
    LiteralValue(4, (2, 3)),
    LiteralValue(5, (0.5,)),
    LiteralValue(6, None),
    LiteralValue(7, 2),
    LiteralValue(8, "tanh"),
    LiteralValue(9, True),
    TensorValue(10, (4,), "float32", "float32"),
]


def bind(*ids: int) -> dict[str, int]:
    calls = (FileCall(3, "test.sample", (*ids, 10)),)
    return dict(bind_graph(GraphFile(tuple(VALUES), calls, (0,), (10,))).calls[0].args)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "test.sample", Sample)


def test_fields_are_arguments_in_order_those_of_bases_first() -> None:
    declared = arguments_of(Sample)
    assert [a.name for a in declared] == ["x", "sizes", "weight", "scale", "keep", "mode", "dtype", "layout"]
    assert [a.default for a in declared if a.default is not REQUIRED] == [1.0, False, "none", None, None]
    assert [str(a) for a in declared[:4]] == ["tensor", "list of int or SymInt", "tensor or None", "float"]


@pytest.mark.parametrize("ids", [(0, 2, 0), (0, 4, 6), (0, 4, 6, 7, 9, 8), (0, 4, 6, 6, 6, 6, 7, 8), (0, 4, 0, 6, 9)])
def test_calls_that_fit(ids: tuple[int, ...]) -> None:
    names = ("x", "sizes", "weight", "scale", "keep", "mode", "dtype", "layout")
    assert bind(*ids) == dict(zip(names, ids, strict=False))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ((0, 4), "argument weight is missing"),
        ((7, 4, 6), "argument x is 2; it takes tensor"),
        ((6, 4, 6), "argument x is None; it takes tensor"),
        ((0, 5, 6), r"argument sizes is \(0.5,\); it takes list of int or SymInt"),
        ((0, 3, 6), "argument sizes is a list of values; it takes list of int or SymInt"),
        ((0, 0, 6), "argument sizes is a float32 tensor; it takes list of int or SymInt"),
        ((0, 4, 1), "argument weight is a SymInt; it takes tensor or None"),
        ((0, 4, 6, 8), "argument scale is 'tanh'; it takes float"),
        ((0, 4, 6, 7, 7), "argument keep is 2; it takes bool"),
        ((0, 4, 6, 7, 9, 7), "argument mode is 2; it takes str"),
        ((0, 4, 6, 7, 9, 8, 6, 6, 6), "it was given 9 arguments; it takes 8"),
    ],
)
def test_calls_that_do_not_fit_are_refused_with_the_argument(ids: tuple[int, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"^op 3 \(test.sample\): {message}$"):
        bind(*ids)


def test_the_arguments_of_an_unknown_op_are_numbered() -> None:
    call = bind_graph(GraphFile(tuple(VALUES), (FileCall(0, "test.unknown", (0, 7, 10)),), (0,), (10,))).calls[0]
    assert (call.args, call.out) == ({"0": 0, "1": 7}, 10)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (("x", (2,), None), {"x": "x", "sizes": (2,), "weight": None}),
        (("x", (), 0, 2, 1, None), {"x": "x", "sizes": (), "weight": 0, "scale": 2.0, "keep": True, "mode": "none"}),
        (("x", (), None, None), {"x": "x", "sizes": (), "weight": None, "scale": 1.0}),
    ],
)  # fmt: skip
def test_literals_are_seen_as_the_op_declares_them(given: tuple[Any, ...], seen: dict[str, Any]) -> None:
    got = named(Sample, given)
    assert got == seen and [type(v) for v in got.values()] == [type(v) for v in seen.values()]


def test_a_reference_gets_what_it_names_or_the_default() -> None:
    x = np.ones(2)
    assert Sample.evaluate({"x": x, "sizes": (), "weight": None}).tolist() == [1, 1]
    assert Sample.evaluate({"x": x, "scale": 3.0, "mode": "any"}).tolist() == [3, 3]


def test_a_reference_of_something_else_than_the_arguments_is_refused() -> None:
    class Wrong(Base):
        reference = staticmethod(lambda x, axis: x)

    with pytest.raises(TypeError, match="the reference of Wrong takes axis, which the op does not declare"):
        Wrong.evaluate({"x": 1})
