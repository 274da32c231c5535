"""Pairs (key, index) put in order on the GPU: what sorting, top-k and scattering are made of.

Equal keys keep the order of their indices, so every order is stable, and the same in every run. Up to `MOST` pairs are
sorted in the memory of one workgroup; longer rows are sorted in such chunks, which are then merged in global memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hightide.errors import UnsupportedError
from hightide.ops.contract import Context, Dispatch, Kernel, Scratch, ceil_div, kernel
from hightide.ops.reduce.reduce import HELD
from hightide.ops.rows import row_lanes
from hightide.ops.vectors import Vectors

MOST = 1024  # pairs of eight bytes in a workgroup's memory: half of what WebGPU promises
PAIR = 8  # bytes


@dataclass(frozen=True)
class Pairs:
    """Rows of pairs."""

    scratch: Scratch
    rows: int
    width: int


def make_pairs(ctx: Context, rows: int, width: int) -> Pairs:
    nbytes = max(rows * width, 1) * PAIR
    if nbytes > ctx.scratch_limit:
        raise UnsupportedError(f"ordering {rows} x {width} elements takes {nbytes} bytes, over {ctx.scratch_limit}")
    return Pairs(ctx.scratch(nbytes), rows, width)


def power_of_two(count: int) -> int:
    """The least that is not below a count."""
    return 1 << max(count - 1, 0).bit_length()


class ElementOrder:
    """The elements of vectors in order: the dispatches that make `pairs`, of which each row begins with the least."""

    def __init__(self, ctx: Context, vectors: Vectors, descending: bool, first: int | None) -> None:
        """With `first`, only so many pairs of each row are wanted; the fewer, the faster."""
        self.dispatches: list[Dispatch] = []
        if first is not None and first <= MOST // 2:
            self._find_first(ctx, vectors, descending, power_of_two(first))
        else:
            self._sort(ctx, vectors, descending)

    def _sort(self, ctx: Context, vectors: Vectors, descending: bool) -> None:
        self.pairs = make_pairs(ctx, vectors.rows, power_of_two(vectors.count))
        span = min(MOST, self.pairs.width)
        self.dispatches.append(_from_x(ctx, vectors, descending, self.pairs, span, span))
        self.dispatches += _merges(ctx, self.pairs, span)

    def _find_first(self, ctx: Context, vectors: Vectors, descending: bool, keep: int) -> None:
        """Chunks are sorted, and what each begins with is sorted in chunks again, until one is left."""
        span = max(min(MOST, power_of_two(vectors.count)), keep)
        chunks = ceil_div(vectors.count, span)
        self.pairs = make_pairs(ctx, vectors.rows, chunks * keep)
        self.dispatches.append(_from_x(ctx, vectors, descending, self.pairs, span, keep))
        while chunks > 1:
            given, chunks = self.pairs, ceil_div(self.pairs.width, MOST)
            self.pairs = make_pairs(ctx, vectors.rows, chunks * keep)
            route = _chunks(ctx, MOST, FROM="pairs")
            counts = {"rows": given.rows, "chunks": chunks, "span": MOST, "count": given.width, "keep": keep}
            over = route.over(given.rows * chunks, pairs=given.scratch, out=self.pairs.scratch, **counts)
            self.dispatches.append(over)


def order_pairs(ctx: Context, pairs: Pairs, count: int) -> Iterator[Dispatch]:
    """The first `count` pairs of each row in order, in place; the width is a power of two."""
    span = min(MOST, pairs.width)
    if span > 1:
        yield _in_place(ctx, pairs, span, count, merge=False)
    yield from _merges(ctx, pairs, span)


def _merges(ctx: Context, pairs: Pairs, span: int) -> Iterator[Dispatch]:
    """Rows of sorted chunks, merged two by two until each row is one."""
    comparisons = pairs.rows * pairs.width // 2
    half = span
    while half < pairs.width:
        step = half
        while step >= span:
            yield EXCHANGE.over(
                ceil_div(comparisons, 64),
                pairs=pairs.scratch,
                comparisons=comparisons,
                step=step,
                mirrored=int(step == half),
            )
            step //= 2
        yield _in_place(ctx, pairs, span, pairs.width, merge=True)
        half *= 2


def _from_x(ctx: Context, vectors: Vectors, descending: bool, pairs: Pairs, span: int, keep: int) -> Dispatch:
    chunks, kind = pairs.width // keep, HELD.get(vectors.x.dtype, "")
    if kind not in ("f32", "i32", "u8", "i8"):
        raise UnsupportedError(f"ordering {vectors.x.dtype} has no kernel")
    return _chunks(ctx, span, FROM="x", KIND=kind, DESCENDING=descending).over(
        pairs.rows * chunks,
        x=vectors.x,
        out=pairs.scratch,
        rows=pairs.rows,
        chunks=chunks,
        span=span,
        count=vectors.count,
        keep=keep,
        stride=vectors.stride,
    )


def _in_place(ctx: Context, pairs: Pairs, span: int, count: int, merge: bool) -> Dispatch:
    chunks = pairs.width // span
    counts = {"rows": pairs.rows, "chunks": chunks, "span": span, "count": count, "keep": span}
    return _chunks(ctx, span, FROM="out", MERGE=merge).over(pairs.rows * chunks, out=pairs.scratch, **counts)


def _chunks(ctx: Context, span: int, **constants: str | bool) -> Kernel:
    given: dict[str, str | bool] = {"KIND": "", "DESCENDING": False, "MERGE": False, **constants}
    return kernel("sort/sort_chunks.wgsl", MOST=MOST, LANES=row_lanes(ctx, span // 2), **given)


EXCHANGE = kernel("sort/exchange.wgsl")
