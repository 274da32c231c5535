"""Norms whose weight is a number, or as large as the norm: what the exporter makes of a norm that is multiplied."""

from __future__ import annotations

import numpy as np
import pytest

from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import LiteralValue, TensorValue
from hightide.pte.scaled_norms import RMS_NORM, with_row_weights
from hightide.runtime.cpu_session import CpuSession


def norm_of(x: tuple[int, ...], weight: tuple[int, ...]) -> Graph:
    values = (
        TensorValue(0, x, "float32", "float32"),
        TensorValue(1, weight, "float32", "float32"),
        LiteralValue(2, 1e-6),
        TensorValue(3, x, "float32", "float32"),
    )
    return Graph(values, (OpCall(0, RMS_NORM, {"x": 0, "weight": 1, "eps": 2}, 3),), (0, 1), (3,))


@pytest.mark.parametrize("dims", [(), (1,), (2, 5, 8), (5, 8), (5, 1)], ids=str)
def test_any_weight_that_goes_with_the_norm(dims: tuple[int, ...]) -> None:
    graph = with_row_weights(norm_of((2, 5, 8), dims))
    assert [call.name for call in graph.calls] == [RMS_NORM, "aten.mul.Tensor"]
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 8), dims))
    (got,) = CpuSession(graph).run([x, weight])
    want = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_norm_with_a_weight_for_each_element_stays_as_it_is() -> None:
    graph = norm_of((2, 5, 8), (8,))
    assert with_row_weights(graph) is graph
