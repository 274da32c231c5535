"""XNNPACK's nodes as hightide's ops: what each computes, where permutes are left out, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hightide
from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.program_file import TensorSpec
from hightide.formats.pte import read_program
from hightide.formats.xnngraph import (
    INPUT,
    OUTPUT,
    ChannelScales,
    GroupScales,
    RowScales,
    TensorScale,
    XnnGraph,
    XnnNode,
    XnnValue,
)
from hightide.graph.blob import Blob
from hightide.graph.graph import GraphFile
from hightide.ops.binding import bind_graph
from hightide.pte.delegates import read_delegate
from hightide.pte.xnnpack import translated
from hightide.pte.xnnpack.translate import NODES
from hightide.runtime.cpu_session import CpuSession

PROGRAMS = Path(__file__).parents[1] / "conformance"
RNG = np.random.default_rng(0)
NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def floats(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def blob(array: np.ndarray) -> Blob:
    data = np.ascontiguousarray(array).tobytes()
    return Blob(data, 0, len(data))


def constant(array: np.ndarray, datatype: str = "fp32", scaling: Any = None, dims: Sequence[int] = ()) -> XnnValue:
    return XnnValue(tuple(dims) or array.shape, datatype, blob(array), scaling, 0, None)


def between(*dims: int, datatype: str = "fp32", scaling: Any = None) -> XnnValue:
    return XnnValue(dims, datatype, None, scaling, 0, None)


def node(kind: str, ids: dict[str, int], limits: tuple[float, float] | None = None, **fields: Any) -> XnnNode:
    lists = {name: field for name, field in fields.items() if isinstance(field, tuple)}
    reals = {name: field for name, field in fields.items() if isinstance(field, float)}
    rest = {name: field for name, field in fields.items() if isinstance(field, int)}
    return XnnNode(0, kind, ids, {"flags": 0, **rest}, reals, lists, limits)


def graph_of(dims: Sequence[int], made: Sequence[int], values: Sequence[XnnValue], *nodes: XnnNode) -> XnnGraph:
    """Value 0 is the input, value 1 the output, the others follow."""
    first = XnnValue(tuple(dims), "fp32", None, None, INPUT, 0)
    last = XnnValue(tuple(made), "fp32", None, None, OUTPUT, 1)
    return XnnGraph((first, last, *values), nodes, 2)


def spec(dims: Sequence[int], order: Sequence[int] | None = None) -> TensorSpec:
    dim_order = tuple(order or range(len(dims)))
    return TensorSpec("float32", tuple(dims), False, dim_order, None, None, None, None)


def translate(graph: XnnGraph) -> GraphFile:
    return translated(graph, [spec(value.dims) for value in graph.values[:2]])


def run(graph: XnnGraph, x: np.ndarray) -> np.ndarray:
    (out,) = CpuSession(bind_graph(translate(graph))).run([x])
    return out


def compare(graph: XnnGraph, x: np.ndarray, want: np.ndarray) -> None:
    got = run(graph, x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


ONE = {"input": 0, "output": 1}
X = floats(3, 5)


@pytest.mark.parametrize(
    ("kind", "fields", "want"),
    [
        ("ELU", {"alpha": 0.5}, np.where(X > 0, X, 0.5 * np.expm1(X))),
        ("LeakyReLU", {"negative_slope": 0.25}, np.where(X > 0, X, 0.25 * X)),
        ("Square", {}, X * X),
        ("Negate", {}, -X),
        ("Ceiling", {}, np.ceil(X)),
        ("Copy", {}, X),
        ("Clamp", {"limits": (-0.5, inf)}, np.maximum(X, -0.5)),
        ("Abs", {"limits": (0.25, 0.75)}, np.clip(np.abs(X), 0.25, 0.75)),
    ],
)
def test_elements(kind: str, fields: dict[str, Any], want: np.ndarray) -> None:
    compare(graph_of((3, 5), (3, 5), [], node(kind, ONE, **fields)), X, want)


def test_a_linear_with_transposed_weights() -> None:
    weight, bias = floats(5, 4), floats(4)
    linear = node("FullyConnected", {"input1": 0, "output": 1, "filter": 2, "bias": 3}, flags=1)
    compare(graph_of((3, 5), (3, 4), [constant(weight), constant(bias)], linear), X, X @ weight + bias)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_linear_of_8_bits(transposed: bool) -> None:
    codes, scales = RNG.integers(-127, 128, (4, 5)).astype(np.int8), np.abs(floats(4))
    stored = constant(codes.T if transposed else codes, "qcint8", ChannelScales(blob(scales), int(transposed)))
    linear = node("FullyConnected", {"input1": 0, "output": 1, "filter": 2}, flags=int(transposed))
    compare(graph_of((3, 5), (3, 4), [stored], linear), X, X @ (codes * scales[:, None]).T)


def test_linears_of_4_bits_stay_so() -> None:
    codes = RNG.integers(-8, 8, (6, 64)).astype(np.int8)
    packed = ((codes[:, ::2] + 8) | ((codes[:, 1::2] + 8) << 4)).astype(np.uint8)
    scales = (np.abs(floats(6, 2)).view(np.uint32) >> 16).astype(np.uint16)
    exact = (scales.astype(np.uint32) << 16).view(np.float32)
    weight = constant(packed, "qbint4", GroupScales(blob(scales), 32), (6, 64))
    linear = node("FullyConnected", {"input1": 0, "output": 1, "filter": 2})
    graph, x = graph_of((3, 64), (3, 6), [weight], linear), floats(3, 64)
    compare(graph, x, x @ (codes * np.repeat(exact, 32, axis=1)).T)
    assert [call.name for call in translate(graph).calls] == ["et_vk.linear_q4gsw.default"]
    odd = constant(packed[:, :3], "qcint4", ChannelScales(blob(exact[:, 0]), 0), (6, 5))
    compare(graph_of((3, 5), (3, 6), [odd], linear), X, X @ (codes[:, :5] * exact[:, :1]).T)


@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_products_of_any_rank(flags: int) -> None:
    a, b = floats(2, 3, 4, 5), floats(2, 3, 5, 6)
    given, other = (np.swapaxes(x, -1, -2) if flags & bit else x for x, bit in ((a, 2), (b, 1)))
    product = node("BatchMatrixMultiply", {"input1": 0, "input2": 2, "output": 1}, flags=flags)
    compare(graph_of(given.shape, (2, 3, 4, 6), [constant(other)], product), given, a @ b)


# ---- images

IMAGE = floats(2, 6, 7, 3)  # NHWC
PADDING = dict.fromkeys(("padding_top", "padding_right", "padding_bottom", "padding_left"), 0)
POOL = {**PADDING, "pooling_height": 2, "pooling_width": 2, "stride_height": 2, "stride_width": 2}
POOL |= {"dilation_height": 1, "dilation_width": 1}


def test_a_pool_with_more_padding_on_one_side() -> None:
    pool = node("MaxPooling2d", ONE, **{**POOL, "padding_right": 1})
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=-np.inf)
    compare(graph_of(IMAGE.shape, (2, 3, 4, 3), [], pool), IMAGE, padded.reshape(2, 3, 2, 4, 2, 3).max(axis=(2, 4)))


def test_a_global_average_may_drop_dims() -> None:
    compare(graph_of(IMAGE.shape, (2, 3), [], node("GlobalAvgPooling2d", ONE)), IMAGE, IMAGE.mean(axis=(1, 2)))


def test_dims_are_moved_once() -> None:
    """NCHW in, NHWC between, NCHW out: all that is left is the convolution, the sum and the slice."""
    weight = floats(4, 1, 1, 3)
    conv = {**PADDING, "subsampling_height": 1, "subsampling_width": 1, "dilation_height": 1, "dilation_width": 1}
    conv |= {"groups": 1, "adjustment_height": 0, "adjustment_width": 0}
    shift = floats(4)
    graph = graph_of(
        (2, 3, 6, 7),
        (2, 2, 6, 7),
        [
            between(2, 6, 7, 3),
            constant(weight),
            between(2, 6, 7, 4),
            constant(shift),
            between(2, 6, 7, 4),
            between(2, 6, 7, 2),
        ],
        node("StaticTranspose", {"input": 0, "output": 2}, perm=NHWC),
        node("Conv2d", {"input1": 2, "filter": 3, "output": 4}, **conv),
        node("Add", {"input1": 4, "input2": 5, "output": 6}),
        node("StaticSlice", {"input": 6, "output": 7}, offsets=(0, 0, 0, 1), sizes=(2, 6, 7, 2)),
        node("StaticTranspose", {"input": 7, "output": 1}, perm=NCHW),
    )
    x = floats(2, 3, 6, 7)
    want = (np.transpose(x, NHWC) @ weight[:, 0, 0].T + shift)[..., 1:3]
    compare(graph, x, np.transpose(want, NCHW))
    names = [call.name for call in translate(graph).calls]
    assert names == ["aten.convolution.default", "aten.add.Tensor", "aten.slice_copy.Tensor"]


def test_real_images_are_moved_once_per_delegate() -> None:
    """xnn_images has 7 transposes, and none of them is left."""
    file = read_program(PROGRAMS / "xnn_images.pte")
    method = file.methods["forward"]
    for number in range(len(method.delegates)):
        assert "aten.permute_copy.default" not in [call.name for call in read_delegate(file, method, number).calls]


def test_a_tensor_that_is_passed_channels_last() -> None:
    graph = graph_of((2, 6, 7, 3), (2, 6, 7, 3), [], node("Abs", ONE))
    made = translated(graph, [spec((2, 3, 6, 7), NHWC)] * 2)
    x = floats(2, 3, 6, 7)
    np.testing.assert_array_equal(CpuSession(bind_graph(made)).run([x])[0], np.abs(x))
    assert len(made.calls) == 1


def test_an_output_is_a_tensor_of_its_own() -> None:
    compare(graph_of((3, 5), (3, 5), [], node("Copy", ONE)), X, X)
    compare(graph_of((3, 5), (2,), [constant(X[0, :2])], node("Copy", {"input": 2, "output": 1})), X, X[0, :2])


# ---- codes


def test_codes_are_rounded_between_nodes() -> None:
    grid = TensorScale(0.25, 3)
    graph = graph_of(
        (3, 5),
        (3, 5),
        [between(*dims, datatype="qint8", scaling=grid) for dims in ((3, 5), (5, 3), (3, 5))],
        node("Convert", {"input": 0, "output": 2}),
        node("StaticTranspose", {"input": 2, "output": 3}, perm=(1, 0)),
        node("StaticTranspose", {"input": 3, "output": 4}, perm=(1, 0)),
        node("Convert", {"input": 4, "output": 1}),
    )
    compare(graph, X, np.round(X / 0.25) * 0.25)
    assert len(translate(graph).calls) == 2  # what only moves is not rounded again


LINEAR, TWICE = {"input1": 0, "filter": 2, "output": 1}, {"input1": 0, "input2": 0, "output": 1}
ROWS = between(3, 5, datatype="qdint8", scaling=RowScales(1))
CONVERT = node("Convert", {"input": 0, "output": 2})
TENSORFLOW = node("MaxPooling2d", ONE, **{**POOL, "flags": 4})


def flat(*nodes: XnnNode) -> XnnGraph:
    return flat_with([], *nodes)


def flat_with(values: Sequence[XnnValue], *nodes: XnnNode) -> XnnGraph:
    return graph_of((3, 5), (3, 5), values, *nodes)


REFUSED = {
    "an op": (flat(node("ArgMaxPooling2d", ONE)), r"node 0 \(ArgMaxPooling2d\): .*not supp"),
    "attention": (
        flat(node("ScaledDotProductAttention", ONE)),
        "XNNPACK's ScaledDotProductAttention is not supported",
    ),
    "padding": (graph_of(IMAGE.shape, (2, 3, 3, 3), [], TENSORFLOW), r"node 0 \(MaxPooling2d\): TensorFlow's padding"),
    "codes of rows": (
        flat_with([ROWS], CONVERT, node("Tanh", {"input": 2, "output": 1})),
        r"node 0 \(Tanh\): codes with a scale per row",
    ),
    "a type": (
        flat_with([between(3, 5, datatype="bf16")], node("Tanh", {"input": 0, "output": 2})),
        "tensors of bf16",
    ),
    "codes of channels": (
        flat_with([between(3, 5, datatype="qcint8")], node("Tanh", {"input": 0, "output": 2})),
        "gives a tensor of qcint8",
    ),
    "a filter": (
        graph_of(IMAGE.shape, IMAGE.shape, [between(1, 1, 1, 3)], node("Conv2d", LINEAR, groups=1)),
        "value 2 has to be a constant",
    ),
    "flags": (
        flat_with([constant(X)], node("FullyConnected", LINEAR, flags=4)),
        r"node 0 \(FullyConnected\): flags 4",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_it_cannot_run(case: str) -> None:
    graph, reason = REFUSED[case]
    with pytest.raises(UnsupportedError, match=reason):
        translate(graph)


IMPOSSIBLE = {
    "too early": (flat_with([between(3, 5)], node("Tanh", {"input": 2, "output": 1})), "before it is"),
    "twice": (flat(node("Tanh", ONE), node("Tanh", ONE)), "value 1 is there already"),
    "never": (flat(), "value 1 is read before it is computed"),
    "no input": (flat(node("Tanh", {"output": 1})), "has no input"),
    "an order": (flat(node("StaticTranspose", ONE, perm=(0, 0))), "does not order 2 dims"),
    "a slice": (flat(node("StaticSlice", ONE, offsets=(1, 0), sizes=(3, 5))), "3 places from 1"),
    "a rank": (flat(node("StaticSlice", ONE, offsets=(1,), sizes=(3,))), "1 offsets"),
    "pads": (flat(node("StaticConstantPad", ONE, pre_paddings=(1,), post_paddings=(1, 1))), "1 and 2"),
    "a copy": (graph_of((3, 5), (15,), [], node("Copy", ONE)), "value 1 is of rank 1, and is given 2 dims"),
    "an axis": (flat(node("Concatenate2", TWICE, axis=2)), "dim 2"),
    "images": (flat(node("MaxPooling2d", ONE, **POOL)), "not the dims of images"),
    "a matrix": (flat_with([constant(floats(3))], node("FullyConnected", LINEAR)), "no matrix"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_refuses_the_impossible(case: str) -> None:
    graph, reason = IMPOSSIBLE[case]
    with pytest.raises(ProgramError, match=reason):
        translate(graph)


def test_a_program_with_a_node_that_is_not_supported_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(NODES, "FullyConnected")
    with pytest.raises(UnsupportedError, match=r"^xnn_int4.pte \(forward, delegate 0\): node \d+ \(FullyConnected\): "):
        hightide.load(PROGRAMS / "xnn_int4.pte", device="cpu")
