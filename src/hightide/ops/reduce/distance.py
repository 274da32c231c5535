"""Distances between rows of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op, strides_of
from hightide.ops.cost import distinct
from hightide.ops.elementwise.template import broadcast
from hightide.ops.movement.strided import MAX_RANK, padded


class Distance(Op):
    """Base of distances."""

    x: Tensor

    def distances(self, p: float, out: Tensor, pairs: bool, **given: Any) -> Iterable[Dispatch]:
        norm = {0.0: "0", 1.0: "1", 2.0: "2", math.inf: "max"}.get(p, "p")
        power = {"p": p} if norm == "p" else {}
        yield kernel("reduce/distance.wgsl", NORM=norm, PAIRS=pairs).over(
            ceil_div(out.numel, 64), x=self.x, out=out, numel=out.numel, width=self.x.width, **power, **given
        )

    def flops(self, dispatch: Dispatch) -> float:
        return 3 * self.x.width * sum(out.numel for out in distinct(dispatch.writes))


@op("aten._cdist_forward.default", family="reduce")
class DistancesBetween(Distance):
    """The distance of every row of x [.., P, M] from every row of y [.., R, M], by the p-norm; batches broadcast."""

    y: Tensor
    p: float
    compute_mode: int | None = None  # how torch does it

    def outputs(self, ctx: Context) -> list[Dims]:
        x, y = self.x, self.y
        _check_norm(self.p)
        if min(x.rank, y.rank) < 2 or x.width != y.width:
            raise InputError(f"{list(x.dims)} and {list(y.dims)} have no rows of one length")
        return [(*broadcast(x.dims[:-2], y.dims[:-2]), x.dims[-2], y.dims[-2])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        batch = out.dims[:-2]
        return self.distances(
            self.p,
            out,
            pairs=False,
            y=self.y,
            rows=self.y.dims[-2],
            x_rows=self.x.dims[-2],
            first=MAX_RANK - len(batch),
            batch_dims=padded(batch, 1),
            x_strides=padded(_batch_strides(self.x.dims, batch), 0),
            y_strides=padded(_batch_strides(self.y.dims, batch), 0),
        )

    @staticmethod
    def reference(x: np.ndarray, y: np.ndarray, p: float) -> np.ndarray:
        return _norm(np.abs(x[..., :, None, :] - y[..., None, :, :]), p)


@op("aten._pdist_forward.default", family="reduce")
class DistancesWithin(Distance):
    """The distance of every row of x [N, M] from those after it, by the p-norm, one after the other."""

    p: float = 2.0

    def outputs(self, ctx: Context) -> list[Dims]:
        _check_norm(self.p)
        if self.x.rank != 2:
            raise InputError(f"{list(self.x.dims)} is no matrix")
        return [(self.x.dims[0] * max(self.x.dims[0] - 1, 0) // 2,)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.distances(self.p, out, pairs=True, rows=self.x.dims[0])

    @staticmethod
    def reference(x: np.ndarray, p: float) -> np.ndarray:
        first, second = np.triu_indices(len(x), 1)
        return _norm(np.abs(x[first] - x[second]), p)


def _check_norm(p: float) -> None:
    if not p >= 0:
        raise InputError(f"a distance by the norm {p:g}; it must not be negative")


def _batch_strides(dims: Dims, batch: Dims) -> Dims:
    """In elements, over batch dims that the tensor broadcasts to."""
    own = tuple(0 if d == 1 else s for d, s in zip(dims[:-2], strides_of(dims), strict=False))
    return (0,) * (len(batch) - len(own)) + own


def _norm(distances: np.ndarray, p: float) -> Any:
    """Over the last dim."""
    if p == 0:
        return np.sum(distances != 0, axis=-1)
    if p == math.inf:
        return np.max(distances, axis=-1, initial=0)
    return np.sum(distances**p, axis=-1) ** (1 / p)
