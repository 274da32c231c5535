"""Ops that have a reference only; expected values are torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hightide.errors import InputError
from hightide.ops import REGISTRY
from hightide.ops.arguments import named

X = np.array([[1.0, 5.0, 2.0], [4.0, 0.0, 3.0]], np.float32)
I = np.array([[7, -7], [-3, 2]])  # noqa: E741
CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten.sum.dim_IntList", (X, (1,), True), [[8], [7]]),
    ("aten.sum.dim_IntList", (X, (), False, None), 15),
    ("aten.mean.dim", (X, (0,), False), [2.5, 2.5, 2.5]),
    ("aten.amax.default", (X, (-1,)), [5, 4]),
    ("aten.max.dim", (X, 0), ([4, 5, 3], [1, 0, 1])),
    ("aten.argmax.default", (X,), 1),
    ("aten.argmin.default", (X, -1, True), [[0], [1]]),
    ("aten.any.dim", (X > 4, 1, False), [True, False]),
    ("aten.var.correction", (X, (1,), 0, False), [26 / 9, 26 / 9]),
    ("aten.var.dim", (X, (1,)), [13 / 3, 13 / 3]),
    ("aten.cumsum.default", (X, 1, None), [[1, 6, 8], [4, 4, 7]]),
    ("aten.cumsum.default", (np.float32(2), 0), 2),
    ("aten.sort.default", (X, 1, True), ([[5, 2, 1], [4, 3, 0]], [[1, 2, 0], [0, 2, 1]])),
    ("aten.topk.default", (X, 2, -1, False, True), ([[1, 2], [0, 3]], [[0, 2], [1, 2]])),
    ("aten.topk.default", (np.array([1, np.nan, 2]), 2), ([np.nan, 2], [1, 2])),
    ("aten.remainder.Scalar", (I, 4), [[3, 1], [1, 2]]),
    ("aten.fmod.Scalar", (I, 4), [[3, -3], [-3, 2]]),
    ("aten.floor_divide.default", (I, np.array(2)), [[3, -4], [-2, 1]]),
    ("aten.bitwise_and.Scalar", (I, 3), [[3, 1], [1, 2]]),
    ("aten.masked_fill.Scalar", (X, X > 3, -1.0), [[1, -1, 2], [-1, 0, 3]]),
    ("aten.gelu.default", (np.float64(1.0),), 0.8413447460685429),
    ("aten.index.Tensor", (X, (None, np.array([2, -2]))), [[2, 5], [3, 0]]),
    ("aten.index_put.default", (I, (np.array([0, 0]),), np.array([1, 2]), True), [[9, -3], [-3, 2]]),
    ("aten.gather.default", (X, 1, np.array([[2, 0]])), [[2, 1]]),
    ("aten.scatter.src", (I, 1, np.array([[1], [0]]), X), [[7, 1], [4, 2]]),
    ("aten.scatter_add.default", (I, 0, np.array([[1, 1], [1, 0]]), I), [[7, -5], [1, -5]]),
    ("aten.select_scatter.default", (I, np.array([0, 1]), 1, -1), [[7, 0], [-3, 1]]),
    ("aten.slice_scatter.default", (I, np.array([[5, 6]]), 0, 1, None, 1), [[7, -7], [5, 6]]),
    ("aten.nonzero.default", (X > 3,), [[0, 1], [1, 0]]),
    ("aten.constant_pad_nd.default", (I, (1, 0, 0, -1), 9), [[9, 7, -7]]),
    ("aten.split_copy.Tensor", (X, 2, 1), ([[1, 5], [4, 0]], [[2], [3]])),
    ("aten.unbind_copy.int", (I, 1), ([7, -3], [-7, 2])),
    ("aten.copy.default", (I, np.float32(2.7), False), [[2, 2], [2, 2]]),
    ("aten.arange.default", (3,), [0, 1, 2]),
    ("aten._linalg_svd.default", (np.diag([3.0, -2.0]), False, False), ([], [3, 2], [])),
    ("executorch_prim.floordiv.Scalar", (-7, 2), -4),
    ("executorch_prim.mod.Scalar", (-7, 2), -1),
    ("executorch_prim.et_copy_index.tensor", (np.zeros((4, 2)), np.array([1, 2]), 1), [[0, 0], [1, 2]]),
]
CUBE = np.arange(8.0).reshape(1, 1, 2, 2, 2)
PLACES = np.array([[-1, -1, -1], [0, 0, 0], [1, -1, 1], [3, 0.5, -1]]).reshape(1, 4, 1, 1, 3)  # x, y, z
CASES += [  # the corners of a cube, its middle, and a place beyond it
    ("aten.grid_sampler_3d.default", (CUBE, PLACES, 0, 1, True), np.reshape([0, 3.5, 5, 2.5], (1, 1, 4, 1, 1))),
    ("aten.grid_sampler_3d.default", (CUBE, PLACES, 1, 0, True), np.reshape([0, 0, 5, 0], (1, 1, 4, 1, 1))),
    ("aten.grid_sampler_3d.default", (CUBE, PLACES, 0, 0, False), np.reshape([0, 3.5, 0.625, 0], (1, 1, 4, 1, 1))),
]


@pytest.mark.parametrize(("name", "args", "want"), CASES, ids=[case[0] for case in CASES])
def test_meaning(name: str, args: tuple[Any, ...], want: Any) -> None:
    op = REGISTRY[name]
    got = op.evaluate(named(op, args))
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for result, expected in pairs:
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_singular_vectors_give_the_matrix_again() -> None:
    op = REGISTRY["aten._linalg_svd.default"]
    left, values, right = op.evaluate(named(op, (X,)))
    np.testing.assert_allclose(left @ np.diag(values) @ right, X, atol=1e-5)
    with pytest.raises(InputError, match="a matrix without singular values"):
        op.evaluate(named(op, (np.full((2, 2), np.nan),)))
