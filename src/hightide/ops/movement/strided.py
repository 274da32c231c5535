"""One kernel moves elements between two strided boxes; slices, permutes, cats and copies are calls of it.

Where a box is only part of a tensor of bytes, or has something around it, another places it whole words at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import GPU_TYPE, Dispatch, Int, Kernel, Tensor, ceil_div, kernel, strides_of

MAX_RANK = 8  # of the boxes that kernels take


def move(
    x: Tensor,
    out: Tensor,
    dims: Dims,
    src_strides: Dims,
    dst_strides: Dims,
    src_start: int = 0,
    dst_start: int = 0,
    live_start: tuple[Int, int] = (0, 0),
) -> Dispatch:
    """Copy a box of `dims`; `live_start` is (SymInt, stride) added to the source's start."""
    packed = moved_kind(x, out) == "u8"
    if packed and (dst_start or math.prod(dims) != out.numel or dst_strides != strides_of(dims)):
        raise UnsupportedError(f"moving {x.dtype} to part of {out.dtype} has no kernel")
    dims, src_strides, dst_strides = _merge(dims, src_strides, dst_strides)
    numel = math.prod(dims)
    return _strided(packed).over(
        ceil_div(numel, 256 if packed else 64),
        x=x,
        out=out,
        numel=numel,
        dst_start=dst_start,
        src_start=src_start,
        live_start=live_start[0],
        live_stride=live_start[1],
        dims=padded(dims, 1),
        src_strides=padded(src_strides, 0),
        dst_strides=padded(dst_strides, 0),
    )


def copy(x: Tensor, out: Tensor) -> Dispatch:
    """Copy the live elements as they lie."""
    return move(x, out, out.dims, strides_of(out.dims), strides_of(out.dims))


@dataclass(frozen=True)
class Along:
    """Where a box lies along one dim of a tensor: from `start`, its elements `step` apart."""

    dim: int
    start: Int
    step: int = 1


def place(x: Tensor, out: Tensor, before: Dims, value: float | None) -> Dispatch:
    """Copy x to where it starts `before` into out (negative: cut); around it `value`, or with None what is there."""
    if value is None:
        return _placed("kept", x, out, before)
    return _placed("value", x, out, before, fill=bits_of(out.dtype, value))


def place_along(x: Tensor, out: Tensor, along: Along, around: Tensor) -> Dispatch:
    """Copy x into a part of out along one dim; around it stands what `around` has there."""
    moved_kind(around, out)
    placed = {"around": around, "along": MAX_RANK - out.rank + along.dim, "start": along.start, "step": along.step}
    return _placed("tensor", x, out, (0,) * out.rank, **placed)


def rotate(x: Tensor, out: Tensor, shifts: Dims) -> Dispatch:
    """Copy x, moved by `shifts` along the dims; what leaves at the end comes back at the start."""
    return _placed("again", x, out, tuple(s % max(d, 1) for s, d in zip(shifts, x.dims, strict=True)))


def continue_edges(x: Tensor, out: Tensor, before: Dims, how: str) -> Dispatch:
    """Copy x to where it starts `before` into out; around it x goes on, as a "mirror" or as its "edge"."""
    return _placed(how, x, out, before)


def _placed(outside: str, x: Tensor, out: Tensor, before: Dims, **given: Any) -> Dispatch:
    """`outside` is what stands around x; see the kernel."""
    packed = moved_kind(x, out) == "u8"
    return _place(packed, outside, "step" in given).over(
        ceil_div(out.numel, 256 if packed else 64),
        x=x,
        out=out,
        numel=out.numel,
        first=MAX_RANK - out.rank,
        out_dims=padded(out.dims, 1),
        x_dims=padded(x.dims, 1),
        before=padded(before, 0),
        **given,
    )


@cache
def _strided(packed: bool) -> Kernel:
    return kernel("movement/strided.wgsl", "strided_bytes" if packed else "strided", BYTES=packed)


@cache
def _place(packed: bool, outside: str, steps: bool) -> Kernel:
    name = "place_bytes" if packed else "place"
    return kernel("movement/place.wgsl", name, BYTES=packed, OUTSIDE=outside, STEPS=steps)


def moved_kind(x: Tensor, out: Tensor) -> str:
    """The type of element that both have: f32, i32 or u8. Moving converts nothing."""
    kind = GPU_TYPE.get(x.dtype, "")
    if kind not in ("f32", "i32", "u8") or kind != GPU_TYPE.get(out.dtype):
        raise UnsupportedError(f"moving {x.dtype} to {out.dtype} has no kernel")
    return kind


def padded(dims: Dims, lead: int) -> Dims:
    """Dims or strides as kernels take them: always 8, of which the first ones are `lead`."""
    if len(dims) > MAX_RANK:
        raise UnsupportedError(f"a tensor of rank {len(dims)} is over the {MAX_RANK} dims that kernels take")
    return (lead,) * (MAX_RANK - len(dims)) + dims


def word_of(dtype: str, value: float) -> int | float:
    """A number as the parameter whose bits are a word of that element; bytes fill the word."""
    if GPU_TYPE.get(dtype) == "f32":
        return float(value)
    if not math.isfinite(value):
        raise UnsupportedError(f"{value} as {dtype}")
    if GPU_TYPE.get(dtype) == "u8":
        return int(bool(value) if dtype == "bool" else int(value) & 255) * 0x01010101
    return int(value)


def bits_of(dtype: str, value: float) -> int:
    """The same as the word itself."""
    word = word_of(dtype, value)
    return int(np.float32(word).view(np.uint32)) if isinstance(word, float) else word


def broadcast_strides(dims: Dims, to: Dims) -> Dims:
    """Strides that read a contiguous tensor of `dims` as if it had the dims `to`."""
    strides = strides_of(dims)
    lead = len(to) - len(dims)
    return (0,) * lead + tuple(0 if d == 1 else s for d, s in zip(dims, strides, strict=True))


def _merge(dims: Dims, src: Dims, dst: Dims) -> tuple[Dims, Dims, Dims]:
    """Join neighbouring dims that are contiguous on both sides, and drop dims of 1."""
    merged: list[tuple[int, int, int]] = []
    for d, s, t in zip(dims, src, dst, strict=True):
        if d == 1:
            continue
        if merged:
            pd, ps, pt = merged[-1]
            if ps == d * s and pt == d * t:
                merged[-1] = (pd * d, s, t)
                continue
        merged.append((d, s, t))
    if not merged:
        return (1,), (0,), (0,)
    box, source, target = zip(*merged, strict=True)
    return box, source, target
