"""A decoder of one sequence, opened for many: how many rows, pages and tiles it has, and the levels it is built for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hightide.errors import InputError
from hightide.fuse.ragged import MEDIA, RAGGED_INPUTS, RaggedSizes, ragged
from hightide.graph.aliases import Aliases
from hightide.graph.graph import Graph
from hightide.graph.values import Dims, TensorValue
from hightide.llm.decoder import Progress, RaggedDecoder
from hightide.llm.media import Media, MediaSlots
from hightide.llm.models.model_builder import MAX_KEEP
from hightide.ops.binding import graph_aliases
from hightide.ops.pages.work_lists import TILE
from hightide.ops.sampling.sampling import SETTINGS
from hightide.runtime.build import SessionOptions, build_session

PAGE = 16  # tokens


@dataclass(frozen=True)
class Placement:
    """Where a model runs, and how it is held there."""

    device: str | int | None = None  # as in `hightide.load`
    kv: str | None = None  # "f16", "f32", or None for halves on a GPU that has them
    routes: Mapping[str, str] | None = None  # forced, by the name of the choice
    progress: Progress | None = None  # called with (bytes uploaded, bytes in all)
    sequences: int = 1  # at a time, at most
    pages: int | None = None  # in the pool; None: as many as `kv_bytes` hold
    kv_bytes: int | None = None  # for all keys and values; None: a context for every sequence, up to four
    alike: bool = False  # rows are computed alike whatever else is in their batch
    merge: Mapping[str, float] = field(default_factory=dict)  # paths of LoRA adapters, and how much of each
    adapters: Mapping[str, Path] = field(default_factory=dict)  # those that answers may have, by name
    quantize: str | None = None  # the block type that float weights become
    pooling: str | None = ""  # for embeddings: one of POOLINGS; None: as the file says; "": for answers

    @property
    def session_routes(self) -> dict[str, str]:
        return {**(self.routes or {}), **({"rows": "alike"} if self.alike else {})}


def ragged_decoder(
    graph: Graph,
    gpu: Any,
    placement: Placement,
    context: int,
    rows: int,
    vocab_size: int | None = None,
    media: Media | None = None,
) -> RaggedDecoder:
    """A one-sequence graph on a device, for many sequences. With `media`, it takes rows of images: `with_embedding`."""
    halves = placement.kv == "f16" or (placement.kv is None and gpu is not None and gpu.traits.half_caches)
    sizes = ragged_sizes(graph, context, rows, placement, halves, 1 << 62 if gpu is None else gpu.max_binding)
    made = ragged(graph, sizes)
    masks = made.values[made.inputs[RAGGED_INPUTS.index("masks")]]
    assert isinstance(masks, TensorValue)
    levels = _levels(sizes, masks.dims[1])
    options = SessionOptions(placement.kv, placement.session_routes, levels=levels)
    session = build_session(made, gpu, sizes.dynamic, sizes.inputs, options, placement.progress)
    slots = None if media is None else MediaSlots(media, session)
    room = min(context, sizes.pages * sizes.page)
    return RaggedDecoder(session, sizes, context=room, alike=placement.alike, vocab_size=vocab_size, slots=slots)


def ragged_sizes(
    graph: Graph, context: int, rows: int, placement: Placement, halves: bool, max_binding: int
) -> RaggedSizes:
    """For a one-sequence graph: how many rows, pages and tiles its ragged form has."""
    each = -(-context // PAGE)
    pages = each * min(placement.sequences, 4) if placement.pages is None else placement.pages
    caches = _cache_bytes(graph, graph_aliases(graph), halves)
    if placement.kv_bytes is not None and placement.pages is None:
        pages = min(placement.kv_bytes // max(1, sum(caches) * PAGE), each * placement.sequences)
        if pages < 1:
            raise InputError(f"{placement.kv_bytes} bytes do not hold the keys and values of {PAGE} tokens")
    pages = min(pages, max(each, max_binding // max(1, max(caches, default=1) * PAGE)))
    rows = max(min(rows, context), placement.sequences)
    return RaggedSizes(
        rows=rows,
        wanted=rows if placement.pooling else min(rows, max(MAX_KEEP, placement.sequences)),
        singles=rows if placement.alike else placement.sequences,
        tiles=rows // TILE + placement.sequences,
        page=PAGE,
        pages=pages,
        table=each * placement.sequences,
        adapters=len(placement.adapters),
        media=_media_dims(graph),
    )


def _media_dims(graph: Graph) -> Dims:
    """Of the rows of images that a graph is given; () if it takes tokens only."""
    media = graph.values[graph.inputs[2]] if len(graph.inputs) == 3 else None
    return media.dims if isinstance(media, TensorValue) else ()


def _cache_bytes(graph: Graph, aliases: Aliases, halves: bool) -> list[int]:
    """What each KV cache takes for one token; scales and zero points of codes are floats, one for each head."""
    caches = [graph.values[id] for id in aliases.state]
    held = [value for value in caches if isinstance(value, TensorValue) and len(value.dims) == 4]
    floats = 2 if halves else 4
    sizes = [(4 if v.dims[3] == 1 else 1 if v.dtype == "int8" else floats) for v in held]
    return [math.prod(v.dims[2:]) * size for v, size in zip(held, sizes, strict=True)]


def _levels(sizes: RaggedSizes, words: int) -> list[tuple[Dims, ...]]:
    """Steps that a build prepares: prompts of some lengths, and decodes of some numbers of sequences."""
    rows = [n for n in (1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 128, 256, 512, 1024) if n < sizes.rows]
    levels = [level_dims(sizes, words, n, min(1, sizes.wanted), 0, -(-n // TILE)) for n in rows if n > 1]
    levels += [level_dims(sizes, words, n, n, n, 0) for n in rows if n <= min(sizes.singles, sizes.wanted)]
    levels += [level_dims(sizes, words, 1, 1, 1, 0, adapted=1)] if sizes.adapters else []
    return levels


def level_dims(
    sizes: RaggedSizes, words: int, rows: int, wanted: int, singles: int, tiles: int, adapted: int = 0
) -> tuple[Dims, ...]:
    """The dims of the inputs of a ragged graph; `words` are those of a mask."""
    if sizes.singles >= sizes.rows and tiles:  # every row is a tile of its own
        singles, tiles = rows, 0
    dims: dict[str, Dims] = {
        "tokens": (1, rows),
        "chosen": (sizes.wanted,),
        "positions": (rows,),
        "places": (rows,),
        "wanted": (wanted,),
        "settings": (wanted, SETTINGS),
        "masks": (sizes.wanted, words),
        "masked": (wanted,),
        "singles": (singles, 4),
        "tiles": (tiles, 4),
        "pages": (sizes.table,),
        "longest": (1,),
        "adapted": (adapted,),
        "strengths": (adapted, sizes.adapters),
        MEDIA: sizes.media,
    }
    return tuple(dims[name] for name in sizes.inputs)
