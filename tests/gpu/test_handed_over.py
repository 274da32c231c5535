"""Rows that one session makes and another one reads, from an input that stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

from hightide import InputError
from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.session import Fed, Session

MOST, WIDTH = 9, 6
RNG = np.random.default_rng(0)


def giver() -> Graph:
    """x [1, S, WIDTH] -> 2 x"""
    b = GraphBuilder()
    return b.graph(b.call("aten.mul.Scalar", b.input((1, 5, WIDTH)), 2.0))


def taker() -> Graph:
    """Row `indices` of what was handed over, plus 1."""
    b = GraphBuilder()
    indices, media = b.input((1, 4), "int32"), b.input((MOST, WIDTH))
    return b.graph(b.call("aten.add.Scalar", b.call("aten.embedding.default", media, indices), 1.0))


@pytest.fixture(params=["gpu to gpu", "gpu to cpu", "cpu to gpu", "cpu to cpu"])
def pair(request: pytest.FixtureRequest, device: Device) -> tuple[Session, Session]:
    first, _, second = request.param.split()
    sides = []
    for place, graph, dynamic in ((first, giver(), [True]), (second, taker(), [True, False])):
        names = [f"in{n}" for n in range(len(dynamic))]
        made = GpuSession(graph, device, dynamic, names) if place == "gpu" else CpuSession(graph, dynamic, names)
        sides.append(made)
    return sides[0], sides[1]


def read(taker: Session, *rows: int) -> np.ndarray:
    return taker.collect(taker.launch([np.array([rows], np.int32), Fed((MOST, WIDTH))]))[0][0]


def test_rows_go_where_they_are_told_and_stay(pair: tuple[Session, Session]) -> None:
    giver, taker = pair
    a, b = (RNG.standard_normal((1, count, WIDTH)).astype(np.float32) for count in (3, 5))
    giver.run_into([a], taker, 1, 6)
    giver.run_into([b], taker, 1, 0)
    np.testing.assert_array_equal(read(taker, 6, 8, 0, 4), np.stack([a[0, 0], a[0, 2], b[0, 0], b[0, 4]]) * 2 + 1)
    taker.fill_rows(1, 7, np.full((1, WIDTH), 5, np.float32))
    np.testing.assert_array_equal(read(taker, 7, 6), np.stack([np.full(WIDTH, 6.0), a[0, 0] * 2 + 1]))
    if isinstance(giver, GpuSession) and isinstance(taker, GpuSession):
        assert giver.counters.read_bytes == 0


def test_rows_that_do_not_fit_are_refused(pair: tuple[Session, Session]) -> None:
    giver, taker = pair
    with pytest.raises(InputError, match=r"\[1, 3, 6\] does not go into rows 7 to 10 of in1 \[9, 6\]"):
        giver.run_into([np.zeros((1, 3, WIDTH), np.float32)], taker, 1, 7)
    with pytest.raises(InputError, match=r"\[2, 5\] does not go into rows 0 to 2"):
        taker.fill_rows(1, 0, np.zeros((2, 5), np.float32))
    giver.run([np.zeros((1, 3, WIDTH), np.float32)])  # it is of use still
