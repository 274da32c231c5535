"""Values put, or joined, where index tensors say.

Each place that is named becomes a pair (place, number of its value). These are put in order, so that those of one place
stand together: nothing is written twice, and sums are made in the same order in every run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Tensor, ceil_div, kernel, strides_of
from hightide.ops.fill.fill import fill
from hightide.ops.gather.gather import Pick, picked
from hightide.ops.movement.strided import MAX_RANK, bits_of, copy, moved_kind, padded
from hightide.ops.sort.pair_order import make_pairs, order_pairs, power_of_two


@dataclass(frozen=True)
class Points:
    """The places that index tensors name in a tensor, as many as `dims` have elements."""

    dims: Dims
    own: Dims  # strides: where a point lies before its index tensors say
    picks: list[Pick]
    named: Collection[int]  # the dims of the tensor that a place is in; it stands for all elements of the others


@dataclass(frozen=True)
class Values:
    """What is put there: a tensor, by strides over the dims of the other and over the points, or one number."""

    source: Tensor | float
    own_strides: Dims
    point_strides: Dims


@dataclass(frozen=True)
class Join:
    """How values at one place become one."""

    how: str  # "sum", "prod", "mean", "amax" or "amin"
    include_self: bool = True  # with what is there already


SUM = Join("sum")
JOINS = {name: getattr(np, f) for name, f in [("sum", "add"), ("prod", "multiply"), ("mean", "add")]}
JOINS |= {"amax": np.maximum, "amin": np.minimum}  # in NumPy


def put(
    ctx: Context, x: Tensor | None, points: Points, values: Values, join: Join | None, out: Tensor
) -> Iterator[Dispatch]:
    """x, or zeros, with values at points; the last of those that share a place, or all of them joined."""
    source = values.source
    kind = moved_kind(x or out, out)
    if isinstance(source, Tensor):
        moved_kind(source, out)
    if kind == "u8" and (join or x is None):
        raise UnsupportedError(f"joining {out.dtype} by index has no kernel")
    count = math.prod(points.dims)
    if kind != "u8" or not count:
        yield fill(out, 0) if x is None else copy(x, out)
    if not count or not out.numel:
        return
    pairs = make_pairs(ctx, 1, power_of_two(count))
    yield kernel("scatter/points.wgsl", "scatter_points", COUNT=len(points.picks)).over(
        ceil_div(count, 64), pairs=pairs.scratch, **picked(points.dims, points.own, points.picks)
    )
    yield from order_pairs(ctx, pairs, count)
    what = {"values": source} if isinstance(source, Tensor) else {"value": bits_of(out.dtype, source)}
    given = {
        "pairs": pairs.scratch,
        "out": out,
        "points": count,
        "point_first": MAX_RANK - len(points.dims),
        "point_dims": padded(points.dims, 1),
        "point_strides": padded(values.point_strides, 0),
        **what,
    }
    if kind == "u8" and x is not None:
        yield _put_bytes(x, out, points, values, given)
    else:
        yield _put_words(out, points, values, kind, join, given)


def _put_words(
    out: Tensor, points: Points, values: Values, kind: str, join: Join | None, given: dict[str, Any]
) -> Dispatch:
    """Values put into out, or joined with it in their type."""
    others = [d for d in range(out.rank) if d not in points.named]
    strides, dims = strides_of(out.dims), tuple(out.dims[d] for d in others)
    parts = math.prod(dims)
    if given["points"] * parts >= 2**32:  # more than values: they are broadcast
        raise UnsupportedError(f"{given['points']} places of {parts} elements are more than kernels count")
    name = f"scatter_{join.how}" if join else "scatter"
    constants = {"T": kind if join else "word", "JOIN": join.how if join else ""}
    include = join is not None and join.include_self
    return kernel("scatter/put.wgsl", name, VALUES="values" in given, INCLUDE=include, **constants).over(
        ceil_div(given["points"] * parts, 64),
        parts=parts,
        first=MAX_RANK - len(dims),
        dims=padded(dims, 1),
        place_strides=padded(tuple(strides[d] for d in others), 0),
        value_strides=padded(tuple(values.own_strides[d] for d in others), 0),
        **given,
    )


def _put_bytes(x: Tensor, out: Tensor, points: Points, values: Values, given: dict[str, Any]) -> Dispatch:
    """x with values put into it, by words of four bytes."""
    places = tuple(s if d in points.named else 0 for d, s in enumerate(strides_of(out.dims)))
    return kernel("scatter/put_bytes.wgsl", "scatter_bytes", T="u32", VALUES="values" in given).over(
        ceil_div(out.numel, 256),
        x=x,
        numel=out.numel,
        first=MAX_RANK - out.rank,
        dims=padded(out.dims, 1),
        place_strides=padded(places, 0),
        value_strides=padded(values.own_strides, 0),
        **given,
    )
