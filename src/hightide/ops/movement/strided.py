"""One kernel moves elements between two strided boxes; slices, permutes, cats and copies are calls of it.

Where a box is only part of a tensor of bytes, or has something around it, another places it whole words at a time.
"""

from __future__ import annotations

import math

from hightide.errors import UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.legacy import GPU_TYPE, Dispatch, LiveInt, Tensor, ceil_div, kernel, live_params, strides_of

STRIDED = kernel("movement/strided.wgsl")
STRIDED_BYTES = kernel("movement/strided_bytes.wgsl")
PLACE = {  # by (of bytes, what is around stays)
    (packed, keep): kernel(
        "movement/place.wgsl",
        "place_bytes" if packed else "place",
        PER_WORD=f"{4 if packed else 1}u",
        KEEP=str(keep).lower(),
    )
    for packed in (False, True)
    for keep in (False, True)
}


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
    whole = dst_start == 0 and math.prod(dims) == out.numel and dst_strides == strides_of(dims)
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


def place(x: Tensor, out: Tensor, before: Dims, value: float | None) -> Dispatch:
    """Copy x to where it starts `before` into out (negative: cut); around it `value`, or with None what is there."""
    kind = GPU_TYPE.get(out.dtype)
    if kind != GPU_TYPE.get(x.dtype) or kind not in ("f32", "i32", "u8"):
        raise UnsupportedError(f"placing {x.dtype} in {out.dtype} has no kernel")
    if out.rank > 8:
        raise UnsupportedError(f"a tensor of rank {out.rank} is over the 8 dims that kernels take")
    per_word = 4 if kind == "u8" else 1
    pad = 8 - out.rank
    return Dispatch(
        PLACE[kind == "u8", value is None],
        groups=ceil_div(out.numel, 64 * per_word),
        params=(
            out.numel,
            pad,
            word_of(out.dtype, value or 0),
            (1,) * pad + out.dims,
            (1,) * pad + x.dims,
            (0,) * pad + before,
        ),
        reads=(x,),
        writes=(out,),
    )


def word_of(dtype: str, value: float) -> int | float:
    """A number as the parameter whose bits are a word of that element; bytes fill the word."""
    if GPU_TYPE.get(dtype) == "f32":
        return float(value)
    if GPU_TYPE.get(dtype) == "u8":
        return int(bool(value) if dtype == "bool" else int(value) & 255) * 0x01010101
    return int(value)


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
