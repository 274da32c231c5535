"""Rows turned and put into their pages, and attended to in the same dispatch where each is of another sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.symbols import Env, evaluate
from hightide.graph.values import Dims
from hightide.ops.attention.attention_cost import Seen
from hightide.ops.attention.cache import RopeOp
from hightide.ops.attention.rope_attend import RopeAttendOp
from hightide.ops.contract import Context, Dispatch, Int, Tensor, expr_of, op
from hightide.ops.pages.paged_attention import AttendPages, attentions, check_pages
from hightide.ops.pages.work_lists import each_alone, one_sequence


@op("hightide.rope_pages.default", family="attention")
class RopePages(RopeOp):
    """`RopeOp` of rows each at a position and a place of its own."""

    positions: Tensor
    places: Tensor

    def check_where(self, ctx: Context) -> None:
        rows = (self.qkv.dims[1],)
        if self.positions.dims != rows or self.places.dims != rows:
            raise InputError(f"{rows[0]} rows, positions {list(self.positions.dims)}, places {list(self.places.dims)}")
        ctx.require_indices(self.positions, 0, self.cos.dims[0] - 1, "position")
        ctx.require_indices(self.places, 0, self.k_cache.dims[1] - 1, "place")

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        rows, capacity = given["qkv"][1], given["k_cache"][1]
        if rows > capacity:
            raise InputError(f"{rows} rows have no places in a pool of {capacity}")
        return {"places": np.random.default_rng(rows).permutation(capacity)[:rows].astype(np.int32)}

    def seen(self, env: Env) -> Seen:
        rows, capacity = self.qkv.dims[1], self.k_cache.dims[1]
        tables = (self.cos, self.sin)
        return Seen(self.k_cache, self.v_cache, self.heads, rows, rows, capacity, 0, tables=tables)

    def where(self) -> dict[str, Any]:
        rows = {"angles": self.cos.dims[0], "capacity": self.k_cache.dims[1]}
        return {"positions": self.positions, "places": self.places, **rows}

    @classmethod
    def rows(cls, call: Any) -> tuple[np.ndarray, np.ndarray]:
        return call.positions, call.places


@op("hightide.rope_attend_pages.default", family="attention")
class RopeAttendPages(RopeAttendOp, RopePages):
    """`RopePages`, then `AttendPages` of the queries that it gives."""

    singles: Tensor
    tiles: Tensor
    pages: Tensor
    longest: Int
    page: int

    def outputs(self, ctx: Context) -> list[Dims]:
        dims = super().outputs(ctx)
        rows = self.k_cache.dims[1]
        check_pages(ctx, self.k_cache, self.page, (self.singles, self.tiles), self.pages)
        ctx.require(expr_of(self.longest), 0, rows, f"{{value}} keys are not in a pool of {rows}")
        return dims

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        rows, counts = given["qkv"][1], (given["singles"][0], given["tiles"][0], given["pages"][0])
        make = each_alone if counts[:2] == (rows, 0) else one_sequence
        return make(rows, counts, given["page"], given["k_cache"][1])

    def seen(self, env: Env) -> Seen:
        rows, keys, capacity = self.qkv.dims[1], evaluate(expr_of(self.longest), env), self.k_cache.dims[1]
        seen = min(capacity, keys * (self.singles.dims[0] + self.tiles.dims[0]))
        tables = (self.cos, self.sin)
        return Seen(self.k_cache, self.v_cache, self.heads, rows, seen, capacity, rows * keys, tables=tables)

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        alone = self.singles.dims[0] == self.qkv.dims[1] and not self.tiles.dims[0]
        return self.attended(ctx, out, attentions(self, self.queries, self.k_cache, self.v_cache, out), alone)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        q = super().evaluate(arguments)
        pools = {"q": q, "k_pool": arguments["k_cache"], "v_pool": arguments["v_cache"]}
        names = ("singles", "tiles", "pages", "longest", "page", "scale", "window", "softcap", "sinks")
        return AttendPages.evaluate({**pools, **{name: arguments[name] for name in names if name in arguments}})
