"""Rotary embeddings that an exporter has taken apart into slices, products and sums, as one op of q and k again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from hightide.fuse.attention_pass import sliced_rows
from hightide.fuse.linears import VIEW
from hightide.fuse.live_dims import CAT, SELECTS, SLICES, SPLITS, KnownDims
from hightide.fuse.permutes import PERMUTES, swaps_rows_and_heads
from hightide.fuse.rewriter import Rewriter, either_way
from hightide.graph.graph import OpCall

ADD, SUB, MUL, NEG = "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.neg.default"
NEIGHBOURS, HALVES = "et_vk.apply_rotary_emb.default", "et_vk.apply_rotary_emb_hf.default"


def plain_rope(r: Rewriter) -> None:
    """q and k, each turned by the same tables: one op. Where one of them is needed before the other is there, two."""
    waiting: _Turned | None = None
    for call in r.every_call():
        turned = _neighbours(r, call) or _halves(r, call)
        if turned is None or not _floats(r, turned.x, turned.cos, turned.sin):
            continue
        if waiting is not None and waiting.form(r) == turned.form(r) and _join(r, waiting, turned):
            waiting = None
            continue
        if waiting is not None:
            _alone(r, waiting)
        waiting = turned
    if waiting is not None:
        _alone(r, waiting)


@dataclass
class _Turned:
    """Heads [B, S, H, D] of q or k that an op turns, by tables that broadcast to them."""

    op: str
    x: int
    cos: int
    sin: int
    out: int
    gone: list[OpCall]
    sizes: int | None = None  # with which x must be viewed first
    heads_first: bool = False  # the result is [B, H, S, D]

    def form(self, r: Rewriter) -> tuple[object, ...]:
        """What is the same for q and k that one op turns."""
        batch, rows, heads, depth = r.live_dims(self.out)
        return self.op, self.cos, self.sin, self.heads_first, batch, heads if self.heads_first else rows, depth


@dataclass
class _Part:
    """Some elements of each row of a tensor, and the calls that take them."""

    whole: int = -1
    start: int = 0
    end: int = 0
    calls: list[OpCall] = field(default_factory=list)

    def is_of(self, whole: int, start: int, end: int) -> bool:
        return (self.whole, self.start, self.end) == (whole, start, end)


def _part(r: Rewriter, id: int) -> _Part:
    source, views = r.behind_views(id)
    call = _made_by(r, source, *SLICES, *SELECTS, *SPLITS)
    if call is None:
        return _Part()
    x, calls = call.args["x"], [call, *views]
    dims = r.live_dims(x)
    width = dims[-1] if dims else None
    if r.option(call, "dim") not in (-1, len(dims) - 1) or not isinstance(width, int):
        return _Part()
    if call.name in SPLITS:
        items = r.items(call.out)
        widths = [width for part in items[: items.index(source) + 1] if isinstance(width := r.live_dims(part)[-1], int)]
        return _Part(x, sum(widths[:-1]), sum(widths), calls) if len(widths) == items.index(source) + 1 else _Part()
    if call.name in SELECTS:
        index = r.option(call, "index")
        return _Part(x, index % width, index % width + 1, calls) if isinstance(index, int) and width else _Part()
    bounds = [r.option(call, name) for name in ("start", "end", "step")]
    if not all(isinstance(bound, int) for bound in bounds) or bounds[2] != 1:
        return _Part()
    start, end, _ = slice(*bounds).indices(width)
    return _Part(x, start, end, calls)


def _neighbours(r: Rewriter, call: OpCall) -> _Turned | None:
    """(even * cos - odd * sin, even * sin + odd * cos), put side by side again."""
    cat = _made_by(r, call.args["x"], CAT) if call.name == VIEW else None
    parts = () if cat is None else r.items(cat.args["tensors"])
    if cat is None or len(parts) != 2 or r.option(cat, "dim") not in (-1, 4):
        return None
    (less, less_views), (more, more_views) = (r.behind_views(part) for part in parts)
    less_call, more_call = _sum(r, less, SUB), _sum(r, more, ADD)
    if less_call is None or more_call is None:
        return None
    products = [_made_by(r, total.args[side], MUL) for total in (less_call, more_call) for side in ("a", "b")]
    made = [by for by in products if by is not None]
    if len(made) < 4:
        return None
    for (even, cos), (odd, sin) in product(either_way(made[0]), either_way(made[1])):
        heads, first, second = r.live_dims(even), _part(r, even), _part(r, odd)
        x = first.whole
        if len(heads) != 4 or not first.is_of(x, 0, 1) or not second.is_of(x, 1, 2) or x < 0:
            continue
        if _factors(made[2:]) != sorted([sorted((even, sin)), sorted((odd, cos))]):
            continue
        pairs = heads[3]
        if r.live_dims(x) != (*heads, 2) or not isinstance(pairs, int) or r.live_dims(odd) != heads:
            continue
        if any(r.live_dims(part) != (*heads, 1) for part in parts) or r.live_dims(call.out) != (*heads[:3], 2 * pairs):
            continue
        if not (_broadcasts(r, cos, heads, 1) and _broadcasts(r, sin, heads, 1)):
            continue
        view = _made_by(r, x, VIEW)
        source = x if view is None else view.args["x"]
        sizes = None if r.live_dims(source) == r.live_dims(call.out) else call.args["sizes"]
        ends = [*less_views, less_call, *more_views, more_call, cat, call]
        gone = [*([] if view is None else [view]), *first.calls, *second.calls, *made, *ends]
        return _Turned(NEIGHBOURS, source, cos, sin, call.out, gone, sizes)
    return None


def _halves(r: Rewriter, call: OpCall) -> _Turned | None:
    """x * cos + (-x[half:], x[:half]) * sin; x may be the first elements of heads, of which the others stay."""
    if call.name != ADD or _sum(r, call.out, ADD) is None:
        return None
    for one, other in either_way(call):
        plain, crossed = _made_by(r, one, MUL), _made_by(r, other, MUL)
        if plain is None or crossed is None:
            continue
        for (x, cos), (swapped, sin) in product(either_way(plain), either_way(crossed)):
            passed = _swapped(r, swapped, x)
            if not passed:
                continue
            heads, out, others = _and_the_rest(r, x, call)
            source, views = _unchanged(r, heads)
            gone = [*views, *others, *passed, plain, crossed, call]
            if all(_broadcasts(r, table, r.live_dims(x), 1) for table in (cos, sin)):
                return _Turned(HALVES, source, cos, sin, out, gone)
            permute = _made_by(r, source, *PERMUTES)
            if permute is None or not swaps_rows_and_heads(r, permute) or r.is_written(permute.args["x"]):
                continue
            if all(_broadcasts(r, table, r.live_dims(x), 2) for table in (cos, sin)):
                return _Turned(HALVES, permute.args["x"], cos, sin, out, gone, heads_first=True)
    return None


def _swapped(r: Rewriter, id: int, x: int) -> list[OpCall]:
    """The calls that make (-x[half:], x[:half]), if they do."""
    cat = _made_by(r, id, CAT)
    parts = () if cat is None else r.items(cat.args["tensors"])
    neg = _made_by(r, parts[0], NEG) if len(parts) == 2 else None
    dims = r.live_dims(x)
    if cat is None or neg is None or len(dims) != 4 or r.option(cat, "dim") not in (-1, 3):
        return []
    width = dims[3]
    if not isinstance(width, int) or width % 2 or r.live_dims(id) != dims:
        return []
    second, first = _part(r, neg.args["a"]), _part(r, parts[1])
    if not second.is_of(x, width // 2, width) or not first.is_of(x, 0, width // 2):
        return []
    return [*second.calls, *first.calls, neg, cat]


def _and_the_rest(r: Rewriter, x: int, call: OpCall) -> tuple[int, int, list[OpCall]]:
    """The heads, what they become, and the calls that take x, which is turned, from its heads and put it back."""
    users = r.users(call.out)
    parts = r.items(users[0].args["tensors"]) if len(users) == 1 and users[0].name == CAT else ()
    if len(parts) == 2 and parts[0] == call.out and r.option(users[0], "dim") in (-1, 3):
        turned, rest = _part(r, x), _part(r, parts[1])
        heads = r.live_dims(turned.whole) if turned.whole >= 0 else ()
        whole = heads == r.live_dims(users[0].out) and r.live_dims(x) == (*heads[:-1], turned.end)
        if whole and turned.start == 0 and rest.is_of(turned.whole, turned.end, rest.end) and rest.end == heads[-1]:
            return turned.whole, users[0].out, [*turned.calls, *rest.calls, users[0]]
    return x, call.out, []


def _join(r: Rewriter, one: _Turned, other: _Turned) -> bool:
    """One call for both."""
    q, k = (other, one) if any(user.args.get("k") == one.out for user in r.users(one.out)) else (one, other)
    before: list[OpCall] = []
    after: list[OpCall] = []
    given = {name: _heads(r, side, before) for name, side in (("xq", q), ("xk", k))} | _tables(r, q, before)
    if q.op == NEIGHBOURS:
        del given["start"]
    outs = [_turned_heads(r, side, after) for side in (q, k)]
    return r.replace([*one.gone, *other.gone], [*before, OpCall(0, q.op, given, r.new_list(outs)), *after])


def _alone(r: Rewriter, turned: _Turned) -> None:
    before: list[OpCall] = []
    after: list[OpCall] = []
    given = {"x": _heads(r, turned, before), **_tables(r, turned, before), "halves": r.new_literal(turned.op == HALVES)}
    out = _turned_heads(r, turned, after)
    r.replace(turned.gone, [*before, OpCall(0, "hightide.rotary.default", given, out), *after])


def _heads(r: Rewriter, turned: _Turned, before: list[OpCall]) -> int:
    if turned.sizes is None:
        return turned.x
    heads = r.new_tensor(r.tensor(turned.out).dims)
    before.append(OpCall(0, VIEW, {"x": turned.x, "sizes": turned.sizes}, heads))
    return heads


def _turned_heads(r: Rewriter, turned: _Turned, after: list[OpCall]) -> int:
    if not turned.heads_first:
        return turned.out
    batch, heads, rows, width = r.tensor(turned.out).dims
    made = r.new_tensor((batch, rows, heads, width))
    after.append(OpCall(0, PERMUTES[0], {"x": made, "order": r.new_literal((0, 2, 1, 3))}, turned.out))
    return made


def _tables(r: Rewriter, turned: _Turned, before: list[OpCall]) -> dict[str, int]:
    """Matrices, and the row that they are read from on: for halves the tables that rows were taken from."""
    cos, sin = (_rows(r, id, before) for id in (turned.cos, turned.sin))
    if turned.op == HALVES:
        (all_cos, start), (all_sin, other) = (sliced_rows(r, id) for id in (cos, sin))
        if all_cos is not None and all_sin is not None:
            first, same = (0 if (at := r.literal(id)) is None else at for id in (start, other))
            if first is NotImplemented and start == other:  # a SymInt
                return {"cos": all_cos, "sin": all_sin, "start": start}
            if first is not NotImplemented and 0 <= first == same:
                return {"cos": all_cos, "sin": all_sin, "start": r.new_literal(first)}
    return {"cos": cos, "sin": sin, "start": r.new_literal(0)}


def _rows(r: Rewriter, id: int, before: list[OpCall]) -> int:
    source, _ = r.behind_views(id)
    width = r.tensor(id).dims[-1]
    if len(r.tensor(source).dims) == 2 and r.live_dims(source)[-1] == width:
        return source
    rows = r.new_tensor((math.prod(r.tensor(id).dims[:-1]), width))
    before.append(OpCall(0, VIEW, {"x": id, "sizes": r.new_literal((-1, width))}, rows))
    return rows


def _made_by(r: Rewriter, id: int, *names: str) -> OpCall | None:
    call = r.maker(id)
    return call if call is not None and call.name in names else None


def _sum(r: Rewriter, id: int, name: str) -> OpCall | None:
    call = _made_by(r, id, name)
    return call if call is not None and r.option(call, "alpha") == 1 else None


def _factors(products: Sequence[OpCall]) -> list[list[int]]:
    return sorted(sorted((by.args["a"], by.args["b"])) for by in products)


def _unchanged(r: Rewriter, id: int) -> tuple[int, list[OpCall]]:
    """What this is another name of, and the calls that give it that."""
    source, views = r.behind_views(id)
    same = all(r.live_dims(view.out) == r.live_dims(source) for view in views)
    return (source, views) if same else (id, [])


def _broadcasts(r: Rewriter, table: int, heads: KnownDims, axis: int) -> bool:
    """Whether a table has a row for each of the rows, which are this dim of the heads, and not one for all."""
    dims = r.live_dims(table)
    padded = (*(1,) * (4 - len(dims)), *dims)
    return len(heads) == 4 and padded == tuple(heads[n] if n in (axis, 3) else 1 for n in range(4))


def _floats(r: Rewriter, *ids: int) -> bool:
    return all(r.tensor(id).dtype == "float32" for id in ids)
