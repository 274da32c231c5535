"""Ops that only rename dims: the output is the source's memory, and there is nothing to dispatch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.legacy import Context, Dispatch, LiveInt, Op, Tensor, expr_of, normalize_dim, op
from hightide.ops.movement.strided import copy


class View(Op):
    """A view, where it may share memory; a flat copy of the live bytes where it must not."""

    view = True

    def plan(self, ctx: Context, x: Tensor, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        yield copy(x, out)


@op("aten.view_copy.default", "aten.view.default", "aten.reshape.default", "aten._reshape_copy.default")
class ViewCopy(View):
    """The same elements at other dims; one size may be -1."""

    def outputs(self, ctx: Context, x: Tensor, sizes: tuple[int | LiveInt, ...]) -> list[Dims]:
        return [view_dims(x.dims, tuple(ctx.pin(expr_of(size)) for size in sizes))]

    def reference(self, x: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
        return x.reshape(view_dims(x.shape, sizes))


def view_dims(dims: Dims, sizes: Dims) -> Dims:
    count, known = math.prod(dims), math.prod(s for s in sizes if s != -1)
    unknown = sizes.count(-1)
    if unknown == 1 and known and count % known == 0:
        return tuple(count // known if s == -1 else s for s in sizes)
    if unknown == 0 and known == count and min(sizes, default=0) >= 0:
        return sizes
    raise InputError(f"{list(dims)} has {count} elements and cannot be viewed as {list(sizes)}")


@op(
    "aten.clone.default",
    "aten.alias_copy.default",
    "aten.alias.default",
    "aten.lift_fresh_copy.default",
    "aten.detach_copy.default",
    "dim_order_ops._clone_dim_order.default",
    "et_vk.prepack.default",
)
class Same(View):
    """A copy of nothing: the same tensor under another name."""

    def outputs(self, ctx: Context, x: Tensor, *_: Any) -> list[Dims]:
        return [x.dims]

    def reference(self, x: np.ndarray, *_: Any, **__: Any) -> np.ndarray:
        return x


@op("aten.squeeze_copy.dims", "aten.squeeze_copy.dim", "aten.squeeze.dims", "aten.squeeze.dim")
class Squeeze(View):
    """Drops the named dims where they are 1.

    A dim that is dynamic (its max is over 1) stays when it happens to be 1: the exporter decided the rank.
    """

    def outputs(self, ctx: Context, x: Tensor, dims: int | tuple[int, ...]) -> list[Dims]:
        drop = {normalize_dim(d, x.rank) for d in _as_tuple(dims)}
        most = x.value.dims
        return [tuple(d for n, d in enumerate(x.dims) if n not in drop or most[n] != 1)]

    def reference(self, x: np.ndarray, dims: int | tuple[int, ...]) -> np.ndarray:
        return np.squeeze(x, tuple(d for d in _as_tuple(dims) if x.ndim and x.shape[d] == 1))


@op("aten.unsqueeze_copy.default", "aten.unsqueeze.default")
class Unsqueeze(View):
    """Adds a dim of 1."""

    def outputs(self, ctx: Context, x: Tensor, dim: int) -> list[Dims]:
        at = normalize_dim(dim, x.rank + 1)
        return [(*x.dims[:at], 1, *x.dims[at:])]

    def reference(self, x: np.ndarray, dim: int) -> np.ndarray:
        return np.expand_dims(x, dim)


def _as_tuple(dims: int | tuple[int, ...]) -> tuple[int, ...]:
    return dims if isinstance(dims, tuple) else (dims,)
