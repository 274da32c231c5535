"""Attention as dispatches, from one description of it.

Everything about a dispatch follows from `Attention`: there is no other place that sizes it. No route keeps a matrix of
scores: each goes over the keys once with a running maximum (arXiv 1805.02867), so its memory is that of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hightide.graph import symbols
from hightide.graph.symbols import SymExpr
from hightide.ops.choices import Choice
from hightide.ops.contract import Context, Dispatch, Int, Kernel, Scratch, Tensor, ceil_div, expr_of, kernel
from hightide.ops.movement.movement import broadcast_strides
from hightide.traits import Traits

FEW_TOKENS = 8  # up to here a call is decoding: one token, or a draft that is checked
STREAM_ROWS = 16  # query rows of a workgroup, at most: a fifth faster than 8 on llvmpipe at a depth of 64
NARROW_ROWS = 8  # the same for subgroups of four lanes: as fast on SwiftShader, and half to compile
REGISTERS = 64  # elements of q, and of the sums, that a lane of stream.wgsl may hold; 128 take 6 s to compile
MAX_PARTS = 16  # of a head that a lane may hold: its loads are written out, and 64 take 4 s to compile, 128 take 15 s
TILE_ROWS = 8  # as tiles.wgsl divides its lanes
STREAM_BLOCK = 8  # keys that a quad takes at a time
MAX_TURNED = 256  # elements of a head that a workgroup keeps when it has turned them
PART_KEYS = 64  # keys of a workgroup where the context is split, or more if there were too many parts
MOST_PARTS = 128
JOINED = 8  # elements of a row that a workgroup joins: a cache line of vec4s


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
class Pages:
    """Where the keys of a ragged batch are; see `ops.pages.paged_attention`, and `spans` for a batch without pages."""

    tiles: Tensor  # [N, 4]
    table: Tensor | None  # None: the keys are rows of the same step
    page: int  # rows
    tokens: int  # of a tile, at most
    longest: Int  # the most keys that a tile sees

    def given(self, rows: int, capacity: int) -> dict[str, Any]:
        """The parameters and inputs of tile_at.wgsl, for a step of `rows` rows and a pool of `capacity` rows."""
        given = {"tiles": self.tiles, "tile_count": self.tiles.dims[0], "q_rows": rows, "pages": self.table}
        if self.table is not None:
            given |= {"table_size": self.table.numel}
            given |= {"page_bits": self.page.bit_length() - 1, "page_count": capacity // self.page}
        return given


@dataclass(frozen=True)
class Turn:
    """q, k and v side by side, which are normed, turned and put into the caches first; see turned_pair.wgsl."""

    constants: dict[str, Any]
    given: dict[str, Any]
    step: int  # elements that are turned at once


@dataclass(frozen=True)
class Attention:
    """The rows of q at `position` over the keys 0 .. position + added - 1, into `out`.

    With `pages`, the rows of q are those of its tiles, and keys and values lie in pages. With `turn`, tiles have one
    row, and q is not there yet.

    Tensors are [1, rows, heads, depth]; [batch, rows, heads, depth] if `batched`; or [batch, heads, rows, depth] with
    `heads_first`. The heads of all batches count as one list.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    position: Int
    added: int
    causal: bool
    scale: float
    window: int = 0  # how many keys a query sees, itself included; 0: all before it
    softcap: float = 0.0  # scores are squeezed into -softcap .. softcap; 0: they are not
    mask: Tensor | None = None  # added to the scores [batch, heads, tokens, keys]
    sinks: Tensor | None = None  # of each head one more score, whose key has no value
    heads_first: bool = False
    batched: bool = False
    pages: Pages | None = None
    held_q: Scratch | None = None  # where q is, if not in its tensor
    codings: Scratch | Tensor | None = None  # k and v are codes: of each row and head the scale and zero point of both
    turn: Turn | None = None

    @property
    def kv_heads(self) -> int:
        return self._heads(self.k)

    @property
    def tokens(self) -> int:
        """Rows of q, of a tile if there are pages."""
        return self.pages.tokens if self.pages else self.q.dims[2 if self.heads_first else 1]

    @property
    def tiles(self) -> int:
        return self.pages.tiles.dims[0] if self.pages else 1

    @property
    def capacity(self) -> int:
        """The most keys there can be."""
        if self.pages and self.pages.table is not None:
            return min(self.pages.table.numel * self.pages.page, self.k.dims[1])
        return self.k.dims[2 if self.heads_first else 1]

    @property
    def keys(self) -> SymExpr:
        return expr_of(self.pages.longest) if self.pages else expr_of(self.position) + self.added

    @property
    def rows(self) -> int:
        """Query rows of a kv head: those of all heads that share it."""
        return self.tokens * self.group

    @property
    def group(self) -> int:
        """Query heads that share a kv head."""
        return self._heads(self.q) // self._heads(self.k)

    @property
    def step(self) -> int:
        """Elements that are loaded at once; kernels count depths and strides in these."""
        return 4 if self.q.width % 4 == 0 and self.v.width % 4 == 0 else 1

    @property
    def depth(self) -> int:
        return self.q.width // self.step

    @property
    def value_depth(self) -> int:
        return self.v.width // self.step

    @property
    def parts(self) -> int:
        """Elements of a head that a lane of a quad holds."""
        return ceil_div(max(self.depth, self.value_depth), 4)

    def tile(self, most: int) -> int:
        """Query rows of a workgroup. Few different sizes, because each is a kernel to compile."""
        if self.tokens == 1:
            return ceil_div(self.rows, ceil_div(self.rows, most))
        return min(most, next((size for size in (4, 8) if self.rows <= size), most))

    def constants(self, rows: int) -> dict[str, Any]:
        """Those of common.wgsl, and the query rows of a workgroup."""
        return {
            "VEC4": self.step == 4,
            "MASK": self.mask is not None,
            "SINKS": self.sinks is not None,
            "SOFTCAP": self.softcap != 0,
            "PAGED": self.pages is not None,
            "BATCHED": self.batched,
            "SPANS": self.pages is not None and self.pages.table is None,
            "CODES": self.codings is not None,
            "TURNED": self.group * self.depth if self.turn else 0,
            "ROWS": rows,
            **(self.turn.constants if self.turn else {}),
        }

    def given(self, rows: int, block: int) -> dict[str, Any]:
        """The parameters and inputs of common.wgsl, for tiles of `rows` query rows and blocks of `block` keys."""
        tokens, group = self.tokens, self.group
        tensors = {"q": self.q, "k": self.k, "v": self.v}
        given: dict[str, Any] = {
            **tensors,
            "codings": self.codings,
            "mask": self.mask,
            "sinks": self.sinks,
            "kv_heads": self.kv_heads,
            "group": group,
            "tokens": tokens,
            "row_tiles": ceil_div(tokens * group, rows),
            "rows_per_tile": rows,
            "block": block,
            "depth": self.depth,
            "value_depth": self.value_depth,
            "causal": self.causal,
            "window": self.window,
            "scale": self.scale,
            "softcap": self.softcap,
        }
        for name, x in (*tensors.items(), ("out", self.out)):
            given[f"{name}_head"], given[f"{name}_row"] = self.strides(x)
        given |= self.batches(**tensors, out=self.out)
        if self.turn:
            given |= {"q": None, **self.turn.given}
        elif self.held_q:
            given["q"] = self.held_q
        if self.pages is None:
            given |= {"position": self.position, "added": self.added}
        else:
            given |= self.pages.given(self.q.dims[1], self.k.dims[1])
        if self.mask is not None:
            batches, rows_of, heads_of, _ = self.q.dims
            heads_of, rows_of = (rows_of, heads_of) if self.heads_first else (heads_of, rows_of)
            strides = broadcast_strides(self.mask.dims, (batches, heads_of, rows_of, self.capacity))
            given |= dict(zip(("mask_batch", "mask_head", "mask_row", "mask_key"), strides, strict=True))
            given["heads_per_batch"] = heads_of
        return given

    def batches(self, **tensors: Tensor) -> dict[str, Any]:
        """The heads of a batch, and from batch to batch; they need no saying where heads of all batches are alike."""
        if not self.batched:
            return {}
        per_batch = {f"{name}_batch": math.prod(x.dims[1:]) // self.step for name, x in tensors.items()}
        return {"heads_per_batch": self.q.dims[2], **per_batch}

    def strides(self, x: Tensor) -> tuple[int, int]:
        """From head to head, and from row to row."""
        depth, inner = x.width // self.step, x.dims[2]
        return (inner * depth, depth) if self.heads_first else (depth, inner * depth)

    def _heads(self, x: Tensor) -> int:
        return x.dims[0] * x.dims[1 if self.heads_first else 2]


def may_turn(ctx: Context, attention: Attention) -> bool:
    """Whether its `turn` can be done by the same dispatch: no workgroup may need what another one writes."""
    rows, alike = attention.tile(_most_rows(ctx, attention)), attention.turn and attention.turn.step == attention.step
    return bool(alike) and attention.tokens == 1 and attention.rows <= rows and attention.q.width <= MAX_TURNED


def attend(ctx: Context, attention: Attention) -> Iterator[Dispatch]:
    if not attention.out.numel or not attention.tiles:
        return
    rows = attention.tile(_most_rows(ctx, attention))
    if _streams(ctx, attention):
        yield _stream(attention, rows, lanes=8 if ctx.choices.traits.software else 64)
    elif attention.tokens <= FEW_TOKENS:
        yield from _split(ctx, attention)
    else:
        yield _tiles("attention_tiles", attention, rows, split=False).over(
            attention.tiles * attention.kv_heads * ceil_div(attention.rows, rows),
            **attention.given(rows, attention.capacity),
            out=attention.out,
        )


def _streams(ctx: Context, attention: Attention) -> bool:
    route = ctx.choose(DECODE if attention.tokens <= FEW_TOKENS else PREFILL)
    return route in ("single", "stream") and attention.parts <= MAX_PARTS


def _most_rows(ctx: Context, attention: Attention) -> int:
    """Of a workgroup."""
    if not _streams(ctx, attention):
        return TILE_ROWS
    most = STREAM_ROWS if ctx.choices.traits.subgroup_size >= 8 else NARROW_ROWS
    return min(most, REGISTERS // attention.parts)


def _stream(attention: Attention, rows: int, lanes: int) -> Dispatch:
    return kernel(
        "attention/stream.wgsl",
        "attention_stream",
        **attention.constants(rows),
        LANES=lanes,
        PARTS=ceil_div(attention.depth, 4),
        VALUE_PARTS=ceil_div(attention.value_depth, 4),
        WHOLE=attention.depth % 4 == 0,
        WHOLE_VALUES=attention.value_depth % 4 == 0,
        ONE_PAGE=attention.pages is None
        or attention.pages.table is None
        or attention.pages.page % (lanes // 4 * STREAM_BLOCK) == 0,
    ).over(
        attention.tiles * attention.kv_heads * ceil_div(attention.rows, rows),
        **attention.given(rows, STREAM_BLOCK),
        out=attention.out,
    )


def _split(ctx: Context, attention: Attention) -> Iterator[Dispatch]:
    """Parts of the context side by side, then their sums joined; how many parts follows position + tokens."""
    rows = attention.tile(TILE_ROWS)
    every_row = attention.tiles * attention.kv_heads * attention.rows
    part = PART_KEYS * ceil_div(attention.capacity, PART_KEYS * MOST_PARTS)
    most_parts = ceil_div(attention.capacity, part)
    sums = ctx.scratch(most_parts * every_row * attention.v.width * 4)
    stats = ctx.scratch(most_parts * every_row * 8)
    tiles = attention.tiles * attention.kv_heads * ceil_div(attention.rows, rows)
    paged = attention.pages
    plain = replace(attention, sinks=None)  # they are added where the parts are joined
    yield _tiles("attention_split", plain, rows, split=True).over(
        tiles * symbols.ceil_div(attention.keys, part),
        **plain.given(rows, part),
        out=sums,
        stats=stats,
    )
    out_head, out_row = attention.strides(attention.out)
    where: dict[str, Any] = {"position": attention.position, "added": attention.added}
    if paged:
        where = {"tiles": paged.tiles, "q_rows": attention.q.dims[1], "most_keys": attention.capacity}
    constants: dict[str, Any] = {"VEC4": attention.step == 4, "PAGED": paged is not None, "MOST_PARTS": MOST_PARTS}
    constants |= {"SINKS": attention.sinks is not None, "BATCHED": attention.batched, "ELEMENTS": JOINED}
    yield kernel("attention/join.wgsl", "attention_join", **constants).over(
        every_row * ceil_div(attention.value_depth, JOINED),
        sums=sums,
        stats=stats,
        sinks=attention.sinks,
        out=attention.out,
        rows=every_row,
        tokens=attention.tiles if paged else attention.tokens,
        value_depth=attention.value_depth,
        out_head=out_head,
        out_row=out_row,
        block=part,
        **attention.batches(out=attention.out),
        **where,
    )


def _tiles(route: str, attention: Attention, rows: int, split: bool) -> Kernel:
    chunks, ahead = ceil_div(attention.value_depth, 64), 4 if attention.depth % 4 == 0 else 1
    return kernel("attention/tiles.wgsl", route, **attention.constants(rows), CHUNKS=chunks, SPLIT=split, AHEAD=ahead)
