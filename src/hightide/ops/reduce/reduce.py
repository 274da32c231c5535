"""Reductions over any dims: one kernel, an expression per op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.fill.fill import fill
from hightide.ops.legacy import (
    GPU_TYPE,
    Context,
    Dispatch,
    Op,
    Tensor,
    add,
    ceil_div,
    kernel,
    normalize_dim,
    strides_of,
)

NAN = {"f32": "(bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u", "i32": "false"}
BYTE = "(x[at >> 2u] >> ((at & 3u) * 8u)) & 255u"
LOADS = {  # by dtype: how x is declared, and its element as a number
    "float32": ("f32", "x[at]"),
    "float16": ("f32", "x[at]"),
    "int32": ("i32", "x[at]"),
    "int64": ("i32", "x[at]"),
    "bool": ("u32", BYTE),
    "uint8": ("u32", BYTE),
    "int8": ("u32", "extractBits(bitcast<i32>(x[at >> 2u]), (at & 3u) * 8u, 8u)"),
}


@dataclass(frozen=True)
class Reduction(Op):
    """`result` of all elements of some dims joined by `join`; no dims or an empty list means all of them."""

    meaning: Callable[..., Any]
    join: str
    result: str = "part.value"
    sign: str = ">"  # how the best compares with the others
    empty: float | None = None  # what joining nothing gives; None: an error
    whole: bool = False  # there is no argument that names dims
    index: bool = False  # one dim or none, and the result is an index

    def outputs(self, ctx: Context, x: Tensor, *args: Any) -> list[Dims]:
        reduced, keep = self._reduced(x.rank, args)
        if self.empty is None and not all(x.dims[d] for d in reduced):
            raise InputError(f"{list(x.dims)} has nothing to choose from over dims {sorted(reduced)}")
        return [tuple(1 if n in reduced else d for n, d in enumerate(x.dims) if keep or n not in reduced)]

    def plan(self, ctx: Context, x: Tensor, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        kind = GPU_TYPE.get(out.dtype)
        if x.dtype not in LOADS or kind not in ("f32", "i32"):
            raise UnsupportedError(f"reducing {x.dtype} to {out.dtype} has no kernel")
        if x.rank > 8:
            raise UnsupportedError(f"a tensor of rank {x.rank} is over the 8 dims that kernels take")
        reduced, _ = self._reduced(x.rank, args)
        if out.numel and not x.numel:
            yield fill(out, self.empty or 0)
            return
        strides = strides_of(x.dims)
        kept_dims, kept_strides = _merged([(x.dims[n], strides[n]) for n in range(x.rank) if n not in reduced])
        dims, steps = _merged([(x.dims[n], strides[n]) for n in sorted(reduced)])
        count = math.prod(dims)
        declared, load = LOADS[x.dtype]
        compute = "f32" if declared == "f32" or (not self.index and kind == "f32") else "i32"
        lanes = _lanes(count, out.numel, contiguous=steps[-1] == 1)
        pads = 8 - len(kept_dims), 8 - len(dims)
        boxes = (_lead(kept_dims, 1), _lead(kept_strides, 0), _lead(dims, 1), _lead(steps, 0))
        yield Dispatch(
            kernel(
                "reduce/reduce.wgsl",
                f"reduce_{lanes}_lanes",
                X=declared,
                OUT=kind,
                C=compute,
                NAN=NAN[compute],
                LOAD=f"{compute}({load})",
                JOIN=self.join,
                SIGN=self.sign,
                RESULT=self.result,
                LANES=f"{lanes}u",
            ),
            groups=ceil_div(out.numel, 64 // lanes),
            params=(out.numel, count, *pads, *boxes),
            reads=(x,),
            writes=(out,),
        )

    def reference(self, x: np.ndarray, *args: Any) -> Any:
        reduced, keep = self._reduced(x.ndim, args)
        if self.index:  # NumPy's take one axis, or all
            axis = None if len(reduced) != 1 or not x.ndim else next(iter(reduced))
            return self.meaning(x, axis=axis, keepdims=keep)
        return self.meaning(x, axis=tuple(sorted(reduced)) if x.ndim else None, keepdims=keep)

    def _reduced(self, rank: int, args: tuple[Any, ...]) -> tuple[set[int], bool]:
        """The dims that go, and whether they stay as 1."""
        dims, keep, *_ = (None, False) if self.whole else (*args, None, False)[: max(2, len(args))]
        listed = [dims] if isinstance(dims, int) else list(dims or ())
        found = {normalize_dim(d, rank) for d in listed}
        if len(found) != len(listed):
            raise InputError(f"a dim is twice in {listed}")
        return (found or set(range(rank))) if rank else set(), bool(keep)


def _merged(box: list[tuple[int, int]]) -> tuple[Dims, Dims]:
    """(dims, strides) with neighbours that follow each other in memory joined, at least one."""
    merged: list[tuple[int, int]] = []
    for size, stride in box:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    merged = merged or [(1, 1)]
    return tuple(d for d, _ in merged), tuple(s for _, s in merged)


def _lanes(count: int, outputs: int, contiguous: bool) -> int:
    """Threads per output: one where neighbouring outputs read neighbouring elements, or there is little to join."""
    if count < 16 or (not contiguous and outputs >= 1024):
        return 1
    return 8 if count < 256 else 64


def _lead(dims: Dims, fill: int) -> Dims:
    return (fill,) * (8 - len(dims)) + dims


SUM = "return Part(a.value + b.value, 0u);"
BEST = "if (better(b, a)) { return b; }\n    return a;"
MEAN = "part.value / f32(params.count)"
add(Reduction(np.sum, SUM, empty=0.0), "aten.sum.dim_IntList")
add(Reduction(np.sum, SUM, empty=0.0, whole=True), "aten.sum.default")
add(Reduction(np.mean, SUM, MEAN, empty=math.nan), "aten.mean.dim")
add(Reduction(np.mean, SUM, MEAN, empty=math.nan, whole=True), "aten.mean.default")
add(Reduction(np.amax, BEST), "aten.amax.default")
add(Reduction(np.amin, BEST, sign="<"), "aten.amin.default")
add(Reduction(np.amax, BEST, whole=True), "aten.max.default")
add(Reduction(np.amin, BEST, sign="<", whole=True), "aten.min.default")
add(Reduction(np.argmax, BEST, "part.index", index=True), "aten.argmax.default")
add(Reduction(np.argmin, BEST, "part.index", sign="<", index=True), "aten.argmin.default")
