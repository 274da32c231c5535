"""Where values belong in sequences that are in order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import GPU_TYPE, Context, Dispatch, Op, Tensor, ceil_div, kernel, op, require_dtype


class Search(Op):
    """Base of searches; see `_places` for what they give."""

    def places(
        self, values: Tensor | float, sequence: Tensor, sorter: Tensor | None, right: bool, out: Tensor
    ) -> Iterable[Dispatch]:
        kind, given = GPU_TYPE.get(sequence.dtype, ""), values if isinstance(values, Tensor) else None
        if kind not in ("f32", "i32") or (given is not None and GPU_TYPE.get(given.dtype) != kind):
            what = "a number" if given is None else given.dtype
            raise UnsupportedError(f"searching {what} in {sequence.dtype} has no kernel")
        require_dtype("i32", out, *([sorter] if sorter else []))
        made = kernel("sort/search.wgsl", KIND=kind, RIGHT=right, SORTER=sorter is not None, NUMBER=given is None)
        yield made.over(
            ceil_div(out.numel, 64),
            values=given,
            sequence=sequence,
            sorter=sorter,
            out=out,
            numel=out.numel,
            count=sequence.width,
            together=given.width if given is not None and sequence.rank > 1 else max(out.numel, 1),
            number=0 if isinstance(values, Tensor) else _among(values, kind, right),
        )


@op("aten.searchsorted.Tensor", family="sort")
class SearchSorted(Search):
    """Where each value belongs in the sequence of its row, or in the only one; `sorter` puts sequences in order."""

    sequence: Tensor
    values: Tensor
    out_int32: bool = False  # the output says this
    right: bool = False
    side: str | None = None
    sorter: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        sequence, values = self.sequence, self.values
        if not sequence.rank or (sequence.rank > 1 and sequence.dims[:-1] != values.dims[:-1]):
            raise InputError(f"values of {list(values.dims)} in sequences of {list(sequence.dims)}")
        if self.sorter is not None and self.sorter.dims != sequence.dims:
            raise InputError(f"an order of {list(self.sorter.dims)} for sequences of {list(sequence.dims)}")
        return [values.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.places(self.values, self.sequence, self.sorter, _is_right(self.right, self.side), out)

    @staticmethod
    def reference(
        sequence: np.ndarray, values: np.ndarray, right: bool, side: str | None, sorter: np.ndarray | None
    ) -> np.ndarray:
        ordered = sequence if sorter is None else np.take_along_axis(sequence, sorter, -1)
        return _places(values, ordered, _is_right(right, side))


@op("aten.bucketize.Tensor", family="sort")
class Bucketize(Search):
    """Which bucket each value is in, by the boundaries between them."""

    values: Tensor
    boundaries: Tensor
    out_int32: bool = False  # the output says this
    right: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.boundaries.rank != 1:
            raise InputError(f"boundaries of {list(self.boundaries.dims)} are not a vector")
        return [self.values.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.places(self.values, self.boundaries, None, self.right, out)

    @staticmethod
    def reference(values: np.ndarray, boundaries: np.ndarray, right: bool) -> np.ndarray:
        return _places(values, boundaries, right)


@op("aten.searchsorted.Scalar", family="sort")
class SearchSortedScalar(Search):
    """Where one number belongs in a sequence."""

    sequence: Tensor
    value: float
    out_int32: bool = False  # the output says this
    right: bool = False
    side: str | None = None
    sorter: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.sequence.rank != 1 or (self.sorter is not None and self.sorter.dims != self.sequence.dims):
            raise InputError(f"a number is searched in a vector, not in {list(self.sequence.dims)}")
        return [()]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.places(self.value, self.sequence, self.sorter, _is_right(self.right, self.side), out)

    @staticmethod
    def reference(
        sequence: np.ndarray, value: float, right: bool, side: str | None, sorter: np.ndarray | None
    ) -> np.ndarray:
        return SearchSorted.reference(sequence, np.array(value), right, side, sorter)


@op("aten.bucketize.Scalar", family="sort")
class BucketizeScalar(Search):
    """Which bucket a number is in, by the boundaries between them."""

    value: float
    boundaries: Tensor
    out_int32: bool = False  # the output says this
    right: bool = False

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.boundaries.rank != 1:
            raise InputError(f"boundaries of {list(self.boundaries.dims)} are not a vector")
        return [()]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        return self.places(self.value, self.boundaries, None, self.right, out)

    @staticmethod
    def reference(value: float, boundaries: np.ndarray, right: bool) -> np.ndarray:
        return _places(np.array(value), boundaries, right)


def _among(number: float, kind: str, right: bool) -> float:
    """The number as it is compared: among integers, the one next to it that the same elements come before."""
    if kind == "f32":
        return number
    if not abs(number) < 1 << 31:
        raise UnsupportedError(f"searching {number} in int32 has no kernel")
    return math.floor(number) if right else math.ceil(number)


def _is_right(right: bool, side: str | None) -> bool:
    return right or side == "right"


def _places(values: np.ndarray, sequence: np.ndarray, right: bool) -> np.ndarray:
    """How many of a sequence are less than each value (`right`: or equal), by bisection; NaN is never more."""
    rows: Any = sequence if sequence.ndim > 1 else sequence.reshape(1, -1)
    wanted = values if sequence.ndim > 1 else values.reshape(1, -1)
    low, high = np.zeros(wanted.shape, int), np.full(wanted.shape, rows.shape[-1])
    while np.any(low < high):
        middle = (low + high) // 2
        found = np.take_along_axis(rows, np.minimum(middle, rows.shape[-1] - 1), -1)
        after = ~(found > wanted if right else found >= wanted) & (low < high)
        low, high = np.where(after, middle + 1, low), np.where(after, high, np.minimum(middle, high))
    return low.reshape(values.shape)
