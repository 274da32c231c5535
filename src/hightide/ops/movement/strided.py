"""One kernel moves elements between two strided boxes; slices, permutes, cats and copies are calls of it."""

from __future__ import annotations

import math

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import GPU_TYPE, Dispatch, LiveInt, Tensor, ceil_div, kernel, live_params, strides_of

STRIDED = kernel("movement/strided.wgsl")
STRIDED_BYTES = kernel("movement/strided_bytes.wgsl")


def move(
    x: Tensor,
    out: Tensor,
    dims: Dims,
    src_strides: Dims,
    dst_strides: Dims,
    src_start: int = 0,
    dst_start: int = 0,
    live_start: tuple[int | LiveInt, int] = (0, 0),
) -> Dispatch:
    """Copy a box of `dims`; `live_start` is (SymInt, stride) added to the source's start."""
    kinds = {GPU_TYPE.get(x.dtype), GPU_TYPE.get(out.dtype)}
    whole = dst_start == 0 and dims == out.dims and dst_strides == strides_of(dims)
    if kinds != {"f32"} and kinds != {"i32"} and not (kinds == {"u8"} and whole):
        raise UnsupportedError(f"moving {x.dtype} to part of {out.dtype} has no kernel")
    dims, src_strides, dst_strides = _merge(dims, src_strides, dst_strides)
    if len(dims) > 8:
        raise UnsupportedError(f"a tensor of rank {len(dims)} is over the 8 dims that kernels take")
    pad = (1,) * (8 - len(dims))
    numel = math.prod(dims)
    start = (src_start, *live_params(live_start[0]), live_start[1])
    box, source = (*pad, *dims), (*(0 for _ in pad), *src_strides)
    if kinds == {"u8"}:
        packed = (numel, *start, box, source)
        return Dispatch(STRIDED_BYTES, groups=ceil_div(numel, 256), params=packed, reads=(x,), writes=(out,))
    target = (*(0 for _ in pad), *dst_strides)
    params = (numel, dst_start, *start, box, source, target)
    return Dispatch(STRIDED, groups=ceil_div(numel, 64), params=params, reads=(x,), writes=(out,))


def copy(x: Tensor, out: Tensor) -> Dispatch:
    """Copy the live elements as they lie."""
    return move(x, out, out.dims, strides_of(out.dims), strides_of(out.dims))


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
