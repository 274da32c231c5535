"""Rotary embeddings and cache updates that an exporter took apart: one op again, or left alone where that is not it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hightide.fuse import fuse
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession

HEADS, KV_HEADS, DEPTH, CONTEXT, MOST = 4, 2, 8, 16, 5
SLICE, CAT, MUL = "aten.slice_copy.Tensor", "aten.cat.default", "aten.mul.Tensor"
HALVES, NEIGHBOURS = "et_vk.apply_rotary_emb_hf.default", "et_vk.apply_rotary_emb.default"
ALONE = "hightide.rotary.default"


class Heads:
    """q, k and v of MOST tokens at most, at a position, and what turns q and k by rows of two tables."""

    def __init__(self, turning: int, heads_first: bool = False) -> None:
        self.b, self.rng, self.heads_first = GraphBuilder(), np.random.default_rng(0), heads_first
        self.x, self.input_pos = self.b.input((1, MOST, 16)), self.b.input((1,), "int32")
        self.length = self.b.call("sym_size.int", self.x, 1)
        self.position = self.b.call("et_vk.select_as_symint.default", self.input_pos, 0, -1)
        self.end = self.b.call("add", self.position, self.length)
        self.q, self.k, self.v = (self.heads(n) for n in (HEADS, KV_HEADS, KV_HEADS))
        self.cos, self.sin = (self.rows(turning) for _ in range(2))

    def heads(self, count: int) -> TensorValue:
        weight = self.b.constant(self.rng.normal(size=(count * DEPTH, 16)).astype(np.float32))
        made = self.b.call("aten.linear.default", self.x, weight, None)
        made = self.b.call("aten.view_copy.default", made, [1, self.length, count, DEPTH])
        return self.b.call("aten.permute_copy.default", made, [0, 2, 1, 3]) if self.heads_first else made

    def rows(self, width: int) -> TensorValue:
        table = self.b.constant(self.rng.normal(size=(CONTEXT, width)).astype(np.float32))
        rows = self.b.call(SLICE, table, 0, self.position, self.end, 1, dims=[(MOST, width)])
        for at in (0, 1) if self.heads_first else (1,):
            rows = self.b.call("aten.unsqueeze_copy.default", rows, at)
        return rows

    def part(self, x: TensorValue, start: int, end: int) -> TensorValue:
        return self.b.call(SLICE, x, len(x.dims) - 1, start, end, 1)

    def halves(self, x: TensorValue, *, sign: bool = True, factor: float = 1) -> TensorValue:
        b, half = self.b, x.dims[-1] // 2
        first, second = self.part(x, 0, half), self.part(x, half, 2**63 - 1)
        second = b.call("aten.neg.default", second) if sign else second
        turned = b.call(MUL, b.call(CAT, [second, first], -1), self.sin)
        return b.call("aten.add.Tensor", b.call(MUL, x, self.cos), turned, factor)

    def neighbours(self, x: TensorValue, *, swapped: bool = False) -> TensorValue:
        b, dims = self.b, x.dims
        pairs = b.call("aten.view_copy.default", x, [1, self.length, dims[2], -1, 2])
        columns = (self.part(pairs, n, n + 1) for n in ((1, 0) if swapped else (0, 1)))
        even, odd = (b.call("aten.squeeze_copy.dims", column, [4]) for column in columns)
        less = b.call("aten.sub.Tensor", b.call(MUL, even, self.cos), b.call(MUL, odd, self.sin), 1)
        more = b.call("aten.add.Tensor", b.call(MUL, even, self.sin), b.call(MUL, odd, self.cos), 1)
        sides = [b.call("aten.unsqueeze_copy.default", side, 4) for side in (less, more)]
        return b.call("aten.view_copy.default", b.call(CAT, sides, -1), [1, self.length, *dims[2:]])


def check(graph: Graph, names: dict[str, int]) -> None:
    """The fused graph has so many of these ops, and gives the same in float64 at every length, and the same state."""
    fused = fuse(graph)
    counts = Counter(call.name for call in fused.calls)
    assert {name: counts[name] for name in names} == names
    rng = np.random.default_rng(1)
    sessions = [CpuSession(each, dtype="float64") for each in (graph, fused)]
    for rows, position in ((MOST, 0), (1, 5), (3, 6), (2, 0)):
        given = [rng.normal(size=(1, rows, 16)).astype(np.float32), np.array([position], np.int32)]
        for want, got in zip(*(session.run(given) for session in sessions), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    for want, got in zip(*(session.read_state() for session in sessions), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heads_first", [False, True])
def test_halves_are_one_op(heads_first: bool) -> None:
    h = Heads(DEPTH, heads_first)
    graph = h.b.graph(h.halves(h.q), h.halves(h.k))
    check(graph, {HALVES: 1, CAT: 0, MUL: 0, "aten.neg.default": 0, SLICE: 0})


@pytest.mark.parametrize("heads_first", [False, True])
def test_so_are_halves_of_the_first_elements(heads_first: bool) -> None:
    h = Heads(DEPTH // 2, heads_first)
    turned = [
        h.b.call(CAT, [h.halves(h.part(x, 0, DEPTH // 2)), h.part(x, DEPTH // 2, 2**63 - 1)], -1) for x in (h.q, h.k)
    ]
    check(h.b.graph(*turned), {HALVES: 1, CAT: 0, MUL: 0, SLICE: 0})


def test_halves_of_all_heads_are_not_the_first_elements_of_each() -> None:
    """The first columns of a row, viewed as heads, are whole heads."""
    h = Heads(DEPTH // 2)
    joined = h.b.call("aten.view_copy.default", h.q, [1, h.length, HEADS * DEPTH])
    first, rest = (
        h.b.call("aten.view_copy.default", h.part(joined, at, at + 16), [1, h.length, HEADS, 4]) for at in (0, 16)
    )
    check(h.b.graph(h.b.call(CAT, [h.halves(first), rest], -1)), {ALONE: 1, CAT: 1})


def test_heads_that_are_written_meanwhile_are_turned_as_they_were() -> None:
    h = Heads(DEPTH, heads_first=True)
    state = h.b.zeros((1, MOST, HEADS, DEPTH))
    h.b.call("llama.update_cache.default", h.b.call("aten.permute_copy.default", h.q, [0, 2, 1, 3]), state, 0)
    heads = h.b.call("aten.permute_copy.default", state, [0, 2, 1, 3])
    h.b.call("llama.update_cache.default", h.b.constant(np.ones((1, 1, HEADS, DEPTH), np.float32)), state, 0)
    tables = [h.b.constant(h.rng.normal(size=(1, 1, MOST, DEPTH)).astype(np.float32)) for _ in range(2)]
    h.cos, h.sin = tables
    check(h.b.graph(h.halves(heads)), {ALONE: 0})


@pytest.mark.parametrize("computed", [False, True])
def test_neighbours_are_one_op(computed: bool) -> None:
    h = Heads(DEPTH // 2)
    if computed:  # not taken from a table
        angles = h.b.call("aten.view_copy.default", h.part(h.x, 0, DEPTH // 2), [1, h.length, 1, DEPTH // 2])
        h.cos, h.sin = (h.b.call(f"aten.{name}.default", angles) for name in ("cos", "sin"))
    check(h.b.graph(h.neighbours(h.q), h.neighbours(h.k)), {NEIGHBOURS: 1, CAT: 0, MUL: 0})


@pytest.mark.parametrize("form", ["alone", "needed before the other", "other tables"])
def test_heads_that_do_not_go_together_are_one_op_each(form: str) -> None:
    h, early = Heads(DEPTH), list[TensorValue]()
    turned = [h.halves(h.q)]
    if form == "needed before the other":
        early.append(h.b.call("aten.sum.dim_IntList", turned[0], [0, 1, 2, 3], False, None))
        h.k = h.b.call("aten.add.Tensor", h.k, early[0], 1)
    if form == "other tables":
        h.cos, h.sin = h.sin, h.cos
    if form != "alone":
        turned.append(h.halves(h.k))
    check(h.b.graph(*turned, *early), {ALONE: len(turned), HALVES: 0, CAT: 0})


@pytest.mark.parametrize("start", [None, 0])
def test_rows_from_the_first_on_are_read_from_their_table(start: int | None) -> None:
    h = Heads(DEPTH)
    tables = [h.b.constant(h.rng.normal(size=(MOST, DEPTH)).astype(np.float32)) for _ in range(2)]
    rows = [h.b.call(SLICE, table, 0, start, h.length, 1, dims=[(MOST, DEPTH)]) for table in tables]
    h.cos, h.sin = (h.b.call("aten.unsqueeze_copy.default", each, 1) for each in rows)
    check(h.b.graph(h.halves(h.q), h.halves(h.k)), {HALVES: 1, SLICE: 0, CAT: 0})


def test_a_table_that_may_have_too_few_rows_is_not_taken_for_one_that_has_them() -> None:
    h = Heads(DEPTH)
    table = h.b.constant(h.rng.normal(size=(MOST - 1, DEPTH)).astype(np.float32))
    rows = h.b.call(SLICE, table, 0, None, h.length, 1, dims=[(MOST, DEPTH)])
    h.cos = h.sin = h.b.call("aten.unsqueeze_copy.default", rows, 1)
    fused = fuse(h.b.graph(h.halves(h.q), h.halves(h.k)))
    assert not any(call.name in (HALVES, ALONE) for call in fused.calls)


@pytest.mark.parametrize("form", ["no sign", "factor", "swapped", "one row", "half is used"])
def test_what_only_looks_like_it_stays(form: str) -> None:
    h = Heads(DEPTH // 2 if form == "swapped" else DEPTH)
    more: list[TensorValue] = []
    if form == "swapped":
        turned = [h.neighbours(x, swapped=True) for x in (h.q, h.k)]
    else:
        if form == "one row":  # for all tokens
            h.cos, h.sin = (h.b.constant(np.linspace(0, n, DEPTH, dtype=np.float32)) for n in (1, 2))
        turned = [h.halves(x, sign=form != "no sign", factor=0.5 if form == "factor" else 1) for x in (h.q, h.k)]
        if form == "half is used":
            halves = next(call for call in h.b.graph(*turned).calls if call.name == "aten.neg.default")
            more = [h.b.call("aten.relu.default", h.b.values[halves.out])]
    turned_by_ops = 1 if form == "half is used" else 0  # the other heads
    check(h.b.graph(*turned, *more), {HALVES: 0, NEIGHBOURS: 0, ALONE: turned_by_ops})


def attended(h: Heads, form: str = "") -> Graph:
    """q and k turned, written to caches and attended to, one op after the other."""
    b, out = h.b, []
    q, k = h.neighbours(h.q), h.neighbours(h.k)
    caches = [b.zeros((1, CONTEXT, KV_HEADS, DEPTH)) for _ in range(2)]
    for x, cache in zip((k, h.v), caches, strict=True):
        b.call("llama.update_cache.default", x, cache, 0 if form == "written elsewhere" else h.position)
        if form == "read before":
            out.append(b.call("aten.neg.default", cache))
    if form == "written again":
        b.call("llama.update_cache.default", h.v, caches[0], h.position)
    start = 0 if form == "attended elsewhere" else h.position
    return b.graph(b.call("llama.custom_sdpa.default", q, *caches, start, None, 0.0, True, None), *out)


def test_updates_and_attention_are_one_op_with_what_turns_the_heads() -> None:
    ops = {"llama.update_cache.default": 0, "llama.custom_sdpa.default": 0, NEIGHBOURS: 0, "aten.linear.default": 0}
    check(attended(Heads(DEPTH // 2)), {"hightide.rope_attend.default": 1, **ops})


@pytest.mark.parametrize("form", ["read before", "attended elsewhere", "written elsewhere"])
def test_caches_that_are_touched_otherwise_keep_their_updates(form: str) -> None:
    names = {"llama.update_cache.default": 2, "llama.custom_sdpa.default": 1, NEIGHBOURS: 1}
    check(attended(Heads(DEPTH // 2), form), names)


def test_the_last_update_of_a_cache_is_the_one_that_attention_makes() -> None:
    ops = {"llama.update_cache.default": 1, "llama.custom_sdpa.default": 0}
    check(attended(Heads(DEPTH // 2), "written again"), ops)
