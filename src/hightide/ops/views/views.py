"""Ops that only rename dims: the output is the source's memory, and there is nothing to dispatch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.arguments import ignores
from hightide.ops.contract import Context, Dispatch, Int, Op, Tensor, normalize_dim, op
from hightide.ops.movement.strided import copy


def _view(*names: str) -> Callable[[type[Op]], type[Op]]:
    return op(*names, family="views")


class View(Op):
    """A view, where it may share memory; a flat copy of the live bytes where it must not."""

    x: Tensor
    aliases = "x"

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield copy(self.x, out)


@_view("aten.view_copy.default", "aten.view.default", "aten.reshape.default", "aten._reshape_copy.default")
class ViewCopy(View):
    """The same elements at other dims; one size may be -1."""

    sizes: tuple[Int, ...]

    def outputs(self, ctx: Context) -> list[Dims]:
        return [view_dims(self.x.dims, tuple(ctx.pin(size) for size in self.sizes))]

    reference = staticmethod(lambda x, sizes: x.reshape(view_dims(x.shape, sizes)))


def view_dims(dims: Dims, sizes: Dims) -> Dims:
    count, known = math.prod(dims), math.prod(s for s in sizes if s != -1)
    unknown = sizes.count(-1)
    if unknown == 1 and known and count % known == 0:
        return tuple(count // known if s == -1 else s for s in sizes)
    if unknown == 0 and known == count and min(sizes, default=0) >= 0:
        return sizes
    raise InputError(f"{list(dims)} has {count} elements and cannot be viewed as {list(sizes)}")


PREPACK = "et_vk.prepack.default"  # what the exporter puts between a constant and its use


@_view(
    "aten.clone.default",
    "aten.alias_copy.default",
    "aten.alias.default",
    "aten.lift_fresh_copy.default",
    "aten.detach_copy.default",
    "aten._conj_physical.default",  # of real numbers; there are no others here
    "et_copy._h2d_copy.default",
    "et_copy._d2h_copy.default",
    "dim_order_ops._clone_dim_order.default",
    PREPACK,
)
@ignores("non_blocking", "memory_format")
class Same(View):
    """The same tensor under another name."""

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims]

    reference = staticmethod(lambda x: x)


@_view("aten.squeeze_copy.dims", "aten.squeeze_copy.dim", "aten.squeeze.dims", "aten.squeeze.dim")
class Squeeze(View):
    """Drops the named dims where they are 1.

    A dim that is dynamic (its max is over 1) stays when it happens to be 1: the exporter decided the rank.
    """

    dims: int | tuple[int, ...]

    def outputs(self, ctx: Context) -> list[Dims]:
        drop = {normalize_dim(d, self.x.rank) for d in _as_tuple(self.dims)}
        most = self.x.value.dims
        return [tuple(d for n, d in enumerate(self.x.dims) if n not in drop or most[n] != 1)]

    @staticmethod
    def reference(x: np.ndarray, dims: int | tuple[int, ...]) -> np.ndarray:
        return np.squeeze(x, tuple(d for d in _as_tuple(dims) if x.ndim and x.shape[d] == 1))


@_view("aten.unsqueeze_copy.default", "aten.unsqueeze.default")
class Unsqueeze(View):
    """Adds a dim of 1."""

    dim: int

    def outputs(self, ctx: Context) -> list[Dims]:
        at = normalize_dim(self.dim, self.x.rank + 1)
        return [(*self.x.dims[:at], 1, *self.x.dims[at:])]

    reference = staticmethod(lambda x, dim: np.expand_dims(x, dim))


def _as_tuple(dims: int | tuple[int, ...]) -> tuple[int, ...]:
    return dims if isinstance(dims, tuple) else (dims,)
