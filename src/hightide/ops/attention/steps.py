"""Attention as dispatches: scores, softmax, weighted average, from one description of its shape.

Everything about a step follows from `Shape`: there is no other place that sizes attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hightide.graph import symbols
from hightide.graph.symbols import SymExpr
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, LiveInt, Tensor, ceil_div, expr_of, kernel, live_params
from hightide.ops.movement.op import broadcast_strides

SCORES_BYTES = 32 << 20  # more rows than fit are taken in turns, so that memory does not grow with S x context

ADD_MASK = (
    "score += mask[head / params.heads_per_batch * params.mask_batch + head % params.heads_per_batch * params.mask_head"
    " + (params.first + s) * params.mask_row + t * params.mask_key];"
)


@dataclass(frozen=True)
class Shape:
    """`tokens` query rows at `position`, over the keys 0 .. position + added - 1.

    Strides are in elements; heads of all batches count as one list.
    """

    heads: int
    kv_heads: int
    tokens: int
    depth: int  # head dim of q and k
    value_depth: int
    capacity: int  # the most keys there can be: the length of a row of scores
    position: int | LiveInt
    added: int
    causal: bool
    scale: float
    window: int  # how many keys a query sees, itself included; 0: all before it
    softcap: float  # scores are squeezed into -softcap .. softcap; 0: they are not
    q_strides: tuple[int, int]  # (head, row)
    k_strides: tuple[int, int]
    v_strides: tuple[int, int]
    out_strides: tuple[int, int]

    @property
    def keys(self) -> SymExpr:
        return expr_of(self.position) + self.added

    def turn(self, limit: int) -> int:
        """Query rows per turn, so that the scores of one turn stay within `limit` bytes."""
        return max(1, min(self.tokens, limit // (self.heads * self.capacity * 4)))


def attend(
    ctx: Context, shape: Shape, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, heads_per_batch: int, out: Tensor
) -> Iterator[Dispatch]:
    if not out.numel:
        return
    turn = shape.turn(min(SCORES_BYTES, ctx.scratch_limit))
    scores = ctx.scratch(shape.heads * turn * shape.capacity * 4)
    group = shape.heads // shape.kv_heads
    step = 4 if shape.depth % 4 == 0 and shape.value_depth % 4 == 0 else 1
    kind, dot = ("vec4<f32>", "dot") if step == 4 else ("f32", "times")
    live = (*live_params(shape.position), shape.added, int(shape.causal), shape.window)
    visible = {"VISIBLE": _visible()}
    mask_strides: Dims = (0, 0, 0, 0)
    mask_defines: dict[str, object] = {"MASK": "// no mask", "ADD_MASK": "", "OUT": 4}
    if mask is not None:
        declared = "@group(0) @binding(4) var<storage, read> mask: array<f32>;"
        mask_defines = {"MASK": declared, "ADD_MASK": ADD_MASK, "OUT": 5}
        batches = shape.heads // heads_per_batch
        mask_strides = broadcast_strides(mask.dims, (batches, heads_per_batch, shape.tokens, shape.capacity))

    for first in range(0, shape.tokens, turn):
        tokens = min(turn, shape.tokens - first)
        rows = min(4, 1 << (tokens * group - 1).bit_length())  # per thread: 1, 2 or 4
        row_tiles = ceil_div(tokens * group, rows)
        common = (shape.kv_heads, group, tokens, first, row_tiles)
        yield Dispatch(
            kernel("attention/scores.wgsl", ROWS=rows, T=kind, DOT=dot, **mask_defines, **visible),
            groups=shape.kv_heads * row_tiles * symbols.ceil_div(shape.keys, 64),
            params=(
                *common,
                shape.depth // step,
                *(s // step for s in (*shape.q_strides, *shape.k_strides)),
                shape.capacity,
                *live,
                shape.scale,
                shape.softcap,
                heads_per_batch,
                *mask_strides,
            ),
            reads=(q, k) if mask is None else (q, k, mask),
            writes=(scores,),
        )
        yield Dispatch(
            kernel("attention/normalize.wgsl", "scores_softmax", **visible),
            groups=shape.heads * tokens,
            params=(shape.heads * tokens, tokens, first, shape.capacity, *live),
            reads=(),
            writes=(scores,),
        )
        depth = shape.value_depth // step
        yield Dispatch(
            kernel("attention/average.wgsl", ROWS=rows, T=kind, **visible),
            groups=ceil_div(shape.kv_heads * row_tiles * depth, 64),
            params=(
                *common,
                depth,
                *(s // step for s in (*shape.out_strides, *shape.v_strides)),
                shape.capacity,
                *live,
            ),
            reads=(scores, v),
            writes=(out,),
        )


@cache
def _visible() -> str:
    return resources.files("hightide.ops").joinpath("attention/visible.wgsl").read_text()


def update_cache(x: Tensor, cache: Tensor, position: int | LiveInt) -> Dispatch:
    """x [B, S, H, D] into cache [B, C, H, D] at `position`."""
    width = x.dims[2] * x.dims[3]
    step, kind = (4, "vec4<f32>") if width % 4 == 0 else (1, "f32")
    count = x.numel // step
    return Dispatch(
        kernel("attention/cache_update.wgsl", T=kind),
        groups=ceil_div(count, 64),
        params=(count, x.dims[1], cache.dims[1], width // step, *live_params(position)),
        reads=(x,),
        writes=(cache,),
    )
