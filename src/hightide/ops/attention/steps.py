"""Attention as dispatches, from one description of its shape.

Everything about a step follows from `Shape`: there is no other place that sizes attention. No route keeps a matrix of
scores: each goes over the keys once with a running maximum (arXiv 1805.02867), so its memory is that of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hightide.graph import symbols
from hightide.graph.symbols import SymExpr
from hightide.graph.values import Dims
from hightide.ops.attention.mask import with_mask
from hightide.ops.choices import Choice
from hightide.ops.legacy import Context, Dispatch, LiveInt, Tensor, ceil_div, expr_of, kernel, live_params
from hightide.traits import Traits

FEW_TOKENS = 8  # up to here a call is decoding: one token, or a draft that is checked
STREAM_ROWS = 16  # query rows of a workgroup, at most: a fifth faster than 8 on llvmpipe at a depth of 64
REGISTERS = 64  # elements of q, and of the sums, that a lane of stream.wgsl may hold; 128 take 6 s to compile
MAX_PARTS = 16  # of a head that a lane may hold: its loads are written out, and 64 take 4 s to compile, 128 take 15 s
TILE_ROWS = 8  # as tiles.wgsl divides its lanes
STREAM_BLOCK = 8  # keys that a quad takes at a time
PART_KEYS = 256  # keys of a workgroup where the context is split


def _has_quads(traits: Traits) -> bool:
    return traits.subgroups and traits.subgroup_size >= 4


# One dispatch, or parts of the context side by side and a dispatch that joins them: GPUs have more workgroups to fill
# than a model has kv heads.
DECODE = Choice(
    "attention.decode",
    ("single", "split"),
    default=lambda traits: "single" if traits.software and _has_quads(traits) else "split",
    possible=lambda traits, option: option == "split" or _has_quads(traits),
)
# Registers and quads, or workgroup memory.
PREFILL = Choice(
    "attention.prefill",
    ("stream", "tiles"),
    default=lambda traits: "stream" if traits.software and _has_quads(traits) else "tiles",
    possible=lambda traits, option: option == "tiles" or _has_quads(traits),
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
    capacity: int  # the most keys there can be
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

    @property
    def rows(self) -> int:
        """Query rows of a kv head: those of all heads that share it."""
        return self.tokens * self.heads // self.kv_heads

    def tile(self, most: int) -> int:
        """Query rows of a workgroup. Few different sizes, because each is a kernel to compile."""
        if self.tokens == 1:
            return ceil_div(self.rows, ceil_div(self.rows, most))
        return min(most, next((size for size in (4, 8) if self.rows <= size), most))

    @property
    def step(self) -> int:
        """Elements that are loaded at once."""
        return 4 if self.depth % 4 == 0 and self.value_depth % 4 == 0 else 1

    def scores(self, heads_per_batch: int) -> Dims:
        """The dims that a mask broadcasts to."""
        return self.heads // heads_per_batch, heads_per_batch, self.tokens, self.capacity

    def params(self, rows: int, block: int, heads_per_batch: int, mask: tuple[int, ...]) -> tuple[int | float, ...]:
        """As params.wgsl has them, for tiles of `rows` query rows."""
        strides = (*self.q_strides, *self.k_strides, *self.v_strides, *self.out_strides)
        return (
            self.kv_heads,
            self.heads // self.kv_heads,
            self.tokens,
            ceil_div(self.rows, rows),
            rows,
            block,
            *(s // self.step for s in (self.depth, self.value_depth, *strides)),
            *live_params(self.position),
            self.added,
            int(self.causal),
            self.window,
            self.scale,
            self.softcap,
            heads_per_batch,
            *mask,
        )


def attend(
    ctx: Context, shape: Shape, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, heads_per_batch: int, out: Tensor
) -> Iterator[Dispatch]:
    if not out.numel:
        return
    few = shape.tokens <= FEW_TOKENS
    route = ctx.choose(DECODE) if few else ctx.choose(PREFILL)
    parts = ceil_div(max(shape.depth, shape.value_depth) // shape.step, 4)
    if route in ("single", "stream") and parts <= MAX_PARTS:
        lanes = 8 if ctx.choices.traits.software else 64
        yield stream(shape, q, k, v, mask, heads_per_batch, out, parts, lanes)
    elif few:
        yield from split(ctx, shape, q, k, v, mask, heads_per_batch, out)
    else:
        yield tiles(shape, q, k, v, mask, heads_per_batch, out)


def stream(
    shape: Shape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    heads_per_batch: int,
    out: Tensor,
    parts: int,
    lanes: int,
) -> Dispatch:
    rows = shape.tile(min(STREAM_ROWS, REGISTERS // parts))
    depth = shape.depth // shape.step
    defines, strides = with_mask(mask, "stream", shape.scores(heads_per_batch))
    return Dispatch(
        kernel(
            "attention/stream.wgsl",
            "attention_stream",
            **_common(shape, rows),
            LANES=lanes,
            PARTS=ceil_div(depth, 4),
            VALUE_PARTS=ceil_div(shape.value_depth // shape.step, 4),
            IN_DEPTH="true" if depth % 4 == 0 else "part * PARTS + #ju < params.depth",
            SOFTCAP=_softcap(shape, "vec2<f32>"),
            OUT=5 if mask is None else 6,
            **defines,
        ),
        groups=shape.kv_heads * ceil_div(shape.rows, rows),
        params=shape.params(rows, STREAM_BLOCK, heads_per_batch, strides),
        reads=(q, k, v) if mask is None else (q, k, v, mask),
        writes=(out,),
    )


def tiles(
    shape: Shape, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, heads_per_batch: int, out: Tensor
) -> Dispatch:
    rows = shape.tile(TILE_ROWS)
    defines, strides = with_mask(mask, "tiles", shape.scores(heads_per_batch))
    return Dispatch(
        kernel(
            "attention/tiles.wgsl",
            "attention_tiles",
            **_common(shape, rows),
            **_tile(shape),
            SPLIT="no",
            STATS="",
            WRITE="out[head * params.out_head + s * params.out_row + lane + c * LANES] = result / totals[i];",
            OUT=5 if mask is None else 6,
            **defines,
        ),
        groups=shape.kv_heads * ceil_div(shape.rows, rows),
        params=shape.params(rows, shape.capacity, heads_per_batch, strides),
        reads=(q, k, v) if mask is None else (q, k, v, mask),
        writes=(out,),
    )


def split(
    ctx: Context, shape: Shape, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, heads_per_batch: int, out: Tensor
) -> Iterator[Dispatch]:
    """Parts of the context side by side, then their sums joined; how many parts follows position + tokens."""
    rows = shape.tile(TILE_ROWS)
    every_row = shape.heads * shape.tokens
    most_parts = ceil_div(shape.capacity, PART_KEYS)
    sums = ctx.scratch(most_parts * every_row * shape.value_depth * 4)
    stats = ctx.scratch(most_parts * every_row * 8)
    defines, strides = with_mask(mask, "tiles", shape.scores(heads_per_batch))
    first_out = 5 if mask is None else 6
    write = """let place = (part * params.kv_heads * params.group + head) * params.tokens + s;
                out[place * params.value_depth + lane + c * LANES] = result;
                if (lane == 0u && c == 0u) { stats[place] = vec2<f32>(mosts[i], totals[i]); }"""
    yield Dispatch(
        kernel(
            "attention/tiles.wgsl",
            "attention_split",
            **_common(shape, rows),
            **_tile(shape),
            SPLIT="yes",
            STATS=f"@group(0) @binding({first_out + 1}) var<storage, read_write> stats: array<vec2<f32>>;",
            WRITE=write,
            OUT=first_out,
            **defines,
        ),
        groups=shape.kv_heads * ceil_div(shape.rows, rows) * symbols.ceil_div(shape.keys, PART_KEYS),
        params=shape.params(rows, PART_KEYS, heads_per_batch, strides),
        reads=(q, k, v) if mask is None else (q, k, v, mask),
        writes=(sums, stats),
    )
    yield Dispatch(
        kernel("attention/join.wgsl", "attention_join", T=_element(shape)),
        groups=every_row,
        params=(
            every_row,
            shape.tokens,
            *(s // shape.step for s in (shape.value_depth, *shape.out_strides)),
            PART_KEYS,
            *live_params(shape.position),
            shape.added,
        ),
        reads=(sums, stats),
        writes=(out,),
    )


def _element(shape: Shape) -> str:
    return "vec4<f32>" if shape.step == 4 else "f32"


def _common(shape: Shape, rows: int) -> dict[str, object]:
    return {
        "PARAMS": _text("params.wgsl"),
        "VISIBLE": _text("visible.wgsl"),
        "T": _element(shape),
        "DOT": "dot" if shape.step == 4 else "times",
        "ROWS": rows,
    }


def _tile(shape: Shape) -> dict[str, object]:
    return {"CHUNKS": ceil_div(shape.value_depth // shape.step, 64), "SOFTCAP": _softcap(shape, "f32")}


def _softcap(shape: Shape, kind: str) -> str:
    """Where `tanh` overflows it is 1 already."""
    if not shape.softcap:
        return ""
    return f"score_#r = params.softcap * tanh(clamp(score_#r / params.softcap, {kind}(-15.0), {kind}(15.0)));"


@cache
def _text(name: str) -> str:
    return resources.files("hightide.ops").joinpath(f"attention/{name}").read_text()
