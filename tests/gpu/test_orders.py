"""What cases cannot say: NaN, infinities and zeros of both signs in reductions and sorts, long rows, shared places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hightide.gpu.device import Device
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

NAN, INF = np.nan, np.inf
ODD = np.array(
    [[1, NAN, -NAN, INF], [-0.0, 0.0, -0.0, 0.0], [-INF, -3, -INF, 2], [0, 0, 0, -0.0], [1e-42, 0, -1e-42, 0]],
    np.float32,
)
FLOAT_AND_INT = ("float32", "int32")
RANDOM = np.random.default_rng(5)


def both(device: Device, op: str, out: Any, *args: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """(GPU, NumPy) of each output; arrays are inputs."""
    b = GraphBuilder()
    given: list[np.ndarray] = []

    def argument(arg: Any) -> Any:
        if isinstance(arg, list):
            return [argument(a) for a in arg]
        if not isinstance(arg, np.ndarray):
            return arg
        given.append(arg)
        return b.input(arg.shape, str(arg.dtype))

    made = b.call(op, *(argument(arg) for arg in args), dtype=out)
    graph = b.graph(*(made if isinstance(made, tuple) else (made,)))
    with GpuSession(graph, device) as session, CpuSession(graph) as reference:
        return list(zip(session.run(given), reference.run(given), strict=True))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(
    ("op", "out"),
    [
        ("aten.max.dim", FLOAT_AND_INT),
        ("aten.min.dim", FLOAT_AND_INT),
        ("aten.any.dim", "bool"),
        ("aten.all.dim", "bool"),
        ("aten.sort.default", FLOAT_AND_INT),
        ("aten.median.dim", FLOAT_AND_INT),
        ("aten.nanmedian.dim", FLOAT_AND_INT),
    ],
)
def test_odd_numbers(op: str, out: Any, dim: int, device: Device) -> None:
    x = ODD[:-1] if op in ("aten.max.dim", "aten.min.dim") else ODD  # WGSL lets adapters compare tiny numbers as 0
    for got, expected in both(device, op, out, x, dim):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("right", [False, True])
def test_odd_numbers_are_searched_for(right: bool, device: Device) -> None:
    """As torch does: nothing is less than NaN."""
    sequence, values = np.array([-INF, -1, 0, 2, INF, NAN], np.float32), ODD[:-1]
    for got, expected in both(device, "aten.searchsorted.Tensor", "int32", sequence, values, False, right):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, INF])
def test_distances_of_odd_numbers(p: float, device: Device) -> None:
    y = np.zeros((2, 4), np.float32)
    for got, expected in both(device, "aten._cdist_forward.default", "float32", ODD[:3], y, p):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("how", ["amax", "amin", "sum", "mean"])
def test_odd_numbers_are_joined(how: str, device: Device) -> None:
    index = np.array([[0, 0, 1, 1]] * 4, np.int32)
    x = np.zeros((4, 2), np.float32)
    for got, expected in both(device, "aten.scatter_reduce.two", "float32", x, 1, index, ODD[:-1], how, False):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("largest", [False, True])
def test_odd_numbers_in_order(largest: bool, device: Device) -> None:
    """NaN is the largest, and zeros of both signs are equal: the first of them comes first, with its own sign."""
    for op, args in (("aten.sort.default", (-1, largest)), ("aten.topk.default", (11, -1, largest))):
        (values, expected), (indices, places) = both(device, op, FLOAT_AND_INT, ODD.reshape(-1), *args)
        np.testing.assert_array_equal(indices, places)
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


@pytest.mark.parametrize("count", [1, 2, 3, 512, 1023, 1024, 1025, 2048, 2049, 33333])
def test_rows_of_any_length_are_sorted(count: int, device: Device) -> None:
    x = RANDOM.integers(-count // 3 - 1, count // 3 + 2, (2, count)).astype(np.int32)
    for got, expected in both(device, "aten.sort.default", ("int32", "int32"), x, 1, bool(count % 2)):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("k", [1, 40, 512, 513, 1025])
def test_the_first_of_a_long_row(k: int, device: Device) -> None:
    x = RANDOM.integers(0, 500, (2, 33333)).astype(np.float32)
    for got, expected in both(device, "aten.topk.default", FLOAT_AND_INT, x, k):
        np.testing.assert_array_equal(got, expected)


def test_a_variance_far_from_zero(device: Device) -> None:
    x = (1e6 + RANDOM.integers(0, 5, (3, 777))).astype(np.float32)
    ((got, _),) = both(device, "aten.var.correction", "float32", x, [1])
    np.testing.assert_allclose(got, x.astype(np.float64).var(1, ddof=1), rtol=1e-5)


def test_a_variance_of_one_element_is_nan(device: Device) -> None:
    ((got, expected),) = both(device, "aten.var.dim", "float32", np.ones((3, 1), np.float32), [1])
    assert np.isnan(got).all() and np.isnan(expected).all()


def test_the_last_of_many_at_one_place_stands(device: Device) -> None:
    places, values = RANDOM.integers(0, 7, 3001).astype(np.int32), RANDOM.normal(size=3001).astype(np.float32)
    calls: list[tuple[str, tuple[Any, ...]]] = [("aten.index_put.default", ([places], values))]
    calls.append(("aten.scatter.src", (0, places, values)))
    for op, args in calls:
        ((got, expected),) = both(device, op, "float32", np.zeros(9, np.float32), *args)
        np.testing.assert_array_equal(got, expected)


def test_many_at_one_place_add_up_as_numpy_adds_them(device: Device) -> None:
    """In float32 the order shows."""
    places, values = RANDOM.integers(0, 7, 3001).astype(np.int32), RANDOM.normal(size=3001).astype(np.float32)
    for op, args in (
        ("aten.index_put.default", ([places], values, True)),
        ("aten.scatter_add.default", (0, places, values)),
    ):
        ((got, expected),) = both(device, op, "float32", np.zeros(9, np.float32), *args)
        np.testing.assert_array_equal(got, expected)
