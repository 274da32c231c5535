"""Which ops work on each token by itself, and where the dim of the tokens goes in them; see `ragged.py`.

A rule makes a call again in the new graph and says where its rows are then. It refuses what it is not certain of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeAlias

from hightide.errors import UnsupportedError
from hightide.fuse.joining import ANY, Q4
from hightide.graph import symbols
from hightide.graph.graph import OpCall
from hightide.graph.symbols import Sym, SymExpr
from hightide.graph.values import SymIntValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.movement.movement import PERMUTES

# The integers of a one-sequence graph: how many tokens, the position of the first, how many logits are kept.
LENGTH, POSITION, KEEP = (symbols.element(n, 0) for n in range(3))


class NotRaggedError(UnsupportedError):
    """A program that is not known to give, for rows of several sequences, what it gives each sequence alone."""


@dataclass(frozen=True)
class Fixed:
    """A tensor that depends on no input."""

    value: TensorValue  # in the new graph


@dataclass(frozen=True)
class TokenRows:
    """A tensor with one row per token along `dim`."""

    value: TensorValue  # in the new graph
    dim: int
    count: SymExpr  # how many the old graph has, and at most
    most: int
    wanted: bool = False  # those whose logits are wanted, not all of the step


@dataclass(frozen=True)
class Start:
    """The position of the first token, as a tensor [1]."""


@dataclass(frozen=True)
class Counts:
    """0, 1, 2, ... for the tokens, as a tensor [S]."""


Given: TypeAlias = Mapping[str, Any]  # the arguments of a call: what is known of them, or literals


class Walk(Protocol):
    """The new graph so far."""

    inputs: dict[str, TensorValue]
    positions: TokenRows

    def emit(self, call: OpCall, given: Given, *by_rows: str, **changed: Any) -> tuple[TensorValue, ...]: ...
    def call(self, name: str, *args: Any, like: TensorValue) -> TensorValue: ...
    def count(self, rows: TokenRows) -> SymIntValue: ...
    def dtype(self, id: int) -> str: ...
    def wanted(self, rows: TokenRows, count: SymExpr, most: int) -> TokenRows: ...


Rule: TypeAlias = Callable[[Walk, OpCall, Given], "list[TokenRows] | list[Counts]"]


def refuse(call: OpCall, why: str) -> NoReturn:
    raise NotRaggedError(f"{call} {why}")


def same(left: Any, right: SymExpr) -> bool:
    """Whether two integers are the same whatever the call is."""
    return isinstance(left, int | Sym) and symbols.add(left, symbols.mul(right, -1)) == 0


def normal(dim: int, value: TensorValue) -> int:
    """A dim of a tensor, counted from the first."""
    return dim % max(len(value.dims), 1)


def _rows(call: OpCall, given: Given, name: str) -> TokenRows:
    """An argument that must be rows of tokens."""
    found = given.get(name)
    if not isinstance(found, TokenRows):
        refuse(call, f"has no rows of tokens as its {name}")
    return found


def _agree(call: OpCall, several: Sequence[TokenRows]) -> TokenRows:
    """Rows of the same tokens along the same dim; the first of them."""
    first = several[0]
    for rows in several:
        if (rows.dim, rows.wanted) != (first.dim, first.wanted) or not same(rows.count, first.count):
            refuse(call, "puts tokens together that are not the same")
    return first


# ---- rules


def _elementwise(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """Operands are aligned at their last dims; what is the same for every token has no dim there."""
    if any(isinstance(one, Start | Counts) for one in given.values()):
        return [_positions(walk, call, given)]
    rows = [one for one in given.values() if isinstance(one, TokenRows)]
    if not rows:
        refuse(call, "computes with the number of tokens or the position")
    behind = len(rows[0].value.dims) - rows[0].dim
    _agree(call, [replace(one, dim=len(one.value.dims) - one.dim) for one in rows])
    fixed = [one.value.dims for one in given.values() if isinstance(one, Fixed)]
    if any(len(dims) >= behind and dims[-behind] != 1 for dims in fixed):
        refuse(call, "treats tokens by their place in the call")
    (out,) = walk.emit(call, given, *given)
    return [replace(rows[0], value=out, dim=len(out.dims) - behind)]


def _positions(walk: Walk, call: OpCall, given: Given) -> TokenRows:
    """The position of the first token and 0, 1, 2, ...: the positions of all."""
    if not call.name.startswith("aten.add.") or {type(given["a"]), type(given["b"])} != {Start, Counts}:
        refuse(call, "computes with the position of the first token")
    if given.get("alpha") not in (None, 1):
        refuse(call, "computes with the position of the first token")
    return walk.positions


def _range(walk: Walk, call: OpCall, given: Given) -> Any:
    start, end, step = given.get("start", 0), given["end"], given.get("step", 1)
    is_ints = all(isinstance(one, int | Sym) for one in (start, end)) and walk.dtype(call.out) in ("int32", "int64")
    if not is_ints or step != 1 or not same(symbols.add(end, symbols.mul(start, -1)), LENGTH):
        refuse(call, "counts something else than the tokens")
    if same(start, POSITION):
        return [walk.positions]
    if start != 0:
        refuse(call, "counts from something else than 0 or the position")
    return [Counts()]


def _last_dim(*by_rows: str, optional: Sequence[str] = ()) -> Rule:
    """Ops on the last dim of x, whose other arguments by row go along with it."""

    def rule(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
        names = [*by_rows, *(name for name in optional if given.get(name) is not None)]
        x = _agree(call, [_rows(call, given, name) for name in names])
        if x.dim >= len(x.value.dims) - len(given.get("shape", (1,))):
            refuse(call, "mixes the tokens: it works along their dim")
        return [replace(x, value=out) for out in walk.emit(call, given, *names)]

    return rule


def _along(name: str) -> Rule:
    """Ops along the dims that one argument names."""

    def rule(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
        x, named = _rows(call, given, "x"), given.get(name)
        named = getattr(REGISTRY[call.name], name, None) if named is None else named
        dims = [normal(d, x.value) for d in (named if isinstance(named, tuple) else (named,)) if isinstance(d, int)]
        if not dims or x.dim in dims:
            refuse(call, "mixes the tokens: it works along their dim")
        outs = walk.emit(call, given, "x")
        gone = sum(d < x.dim for d in dims) if len(outs[0].dims) < len(x.value.dims) else 0
        return [replace(x, value=out, dim=x.dim - gone) for out in outs]

    return rule


def _table(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """Rows of a table by ids."""
    indices = _rows(call, given, "indices")
    (out,) = walk.emit(call, given, "indices")
    return [replace(indices, value=out)]


def _media(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """Embeddings of tokens, some of them rows of images."""
    rows = [_rows(call, given, name) for name in ("x", "tokens")]
    first = _agree(call, rows)
    (out,) = walk.emit(call, given, "x", "tokens")
    return [replace(first, value=out)]


def _index(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """x[..., indices]: what the rows of one index tensor pick from a table."""
    at = [n for n, one in enumerate(given["indices"]) if one is not None]
    if len(at) != 1 or not isinstance(given["x"], Fixed) or not isinstance(given["indices"][at[0]], TokenRows):
        refuse(call, "picks by something else than one index by token, or not from a table")
    rows = given["indices"][at[0]]
    if rows == walk.positions and at == [0]:
        return [_gathered(walk, given["x"])]
    (out,) = walk.emit(call, given, "indices")
    return [replace(rows, value=out, dim=at[0] + rows.dim)]


def _index_select(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    if isinstance(given["x"], TokenRows):
        return list(_along("dim")(walk, call, given))  # type: ignore[arg-type]
    indices, (out,) = _rows(call, given, "indices"), walk.emit(call, given, "indices")
    return [replace(indices, value=out, dim=normal(given["dim"], given["x"].value))]


def _gather(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    x = _agree(call, [_rows(call, given, name) for name in ("x", "indices")])
    if normal(given["dim"], x.value) == x.dim:
        refuse(call, "mixes the tokens: it works along their dim")
    (out,) = walk.emit(call, given, "x", "indices")
    return [replace(x, value=out)]


def _product(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """Rows times a matrix that is the same for all."""
    x, bias = _rows(call, given, "x"), given.get("bias")
    if x.dim != len(x.value.dims) - 2 or (isinstance(bias, Fixed) and bias.value.dims[-2:-1] not in ((), (1,))):
        refuse(call, "does not multiply each token by itself")
    (out,) = walk.emit(call, given, "x")
    return [replace(x, value=out)]


def _same_dims(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    x = _rows(call, given, "x")
    (out,) = walk.emit(call, given, "x")
    return [replace(x, value=out)]


# ---- rules of what moves elements


def _view(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """The tokens stay a dim of their own if as many elements are before and behind it as were."""
    x = _rows(call, given, "x")
    dims, sizes = x.value.dims, list(given["sizes"])
    before, behind = math.prod(dims[: x.dim]), math.prod(dims[x.dim + 1 :])
    numbers = math.prod(size for size in sizes if isinstance(size, int) and size != -1)
    if -1 in sizes and numbers:
        live = any(isinstance(size, Sym) for size in sizes)
        rest = before * behind * (1 if live or numbers == before * behind else x.most)
        sizes[sizes.index(-1)] = x.count if not live and numbers == before * behind else rest // numbers
    found = [
        n
        for n, size in enumerate(sizes)
        if (same(size, x.count) or size == x.most)
        and all(isinstance(other, int) for m, other in enumerate(sizes) if m != n)
        and (math.prod(sizes[:n]), math.prod(sizes[n + 1 :])) == (before, behind)
    ]
    if not found:
        refuse(call, "joins the dim of the tokens with another")
    # Where a call takes one token, several dims of 1 may be that of the tokens; batches stand before it.
    dim = 1 if 1 in found else found[-1]
    new = [walk.count(x) if n == dim else size for n, size in enumerate(sizes)]
    return [replace(x, value=walk.call("aten.view_copy.default", x.value, new, like=x.value), dim=dim)]


def _squeeze(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    x, named = _rows(call, given, "x"), given["dims"]
    dims = {normal(d, x.value) for d in (named if isinstance(named, tuple) else (named,))}
    if x.dim in dims:
        if x.most != 1 or len(dims) > 1:
            refuse(call, "takes away the dim of the tokens")
        return [_without_dim(walk, call, x)]
    (out,) = walk.emit(call, given, "x")
    return [replace(x, value=out, dim=x.dim - sum(d < x.dim and x.value.dims[d] == 1 for d in dims))]


def _unsqueeze(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    x = _rows(call, given, "x")
    at = given["dim"] % (len(x.value.dims) + 1)
    if x.most == 1:  # either of two dims of 1 may be that of the tokens
        sizes = [1 if n == x.dim else size for n, size in enumerate(x.value.dims)]
        return _view(walk, call, {"x": x, "sizes": (*sizes[:at], 1, *sizes[at:])})
    (out,) = walk.emit(call, given, "x")
    return [replace(x, value=out, dim=x.dim + (at <= x.dim))]


def _permute(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    x, rank = _rows(call, given, "x"), len(_rows(call, given, "x").value.dims)
    order = given.get("order") or tuple(reversed(range(rank)))
    (out,) = walk.emit(call, given, "x")
    return [replace(x, value=out, dim=[d % rank for d in order].index(x.dim))]


def _cat(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    if not all(isinstance(one, TokenRows) for one in given["tensors"]):
        refuse(call, "joins rows of tokens with something else")
    x = _agree(call, given["tensors"])
    if normal(given.get("dim") or 0, x.value) == x.dim:
        refuse(call, "joins tokens along their dim")
    (out,) = walk.emit(call, given, "tensors")
    return [replace(x, value=out)]


def _expand(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    x, sizes = _rows(call, given, "x"), list(given["sizes"])
    dim = x.dim + len(sizes) - len(x.value.dims)
    if dim < 0 or not (sizes[dim] in (-1, x.most) or same(sizes[dim], x.count)):
        refuse(call, "repeats tokens")
    sizes[dim] = -1
    (out,) = walk.emit(call, given, "x", sizes=tuple(sizes))
    return [replace(x, value=out, dim=dim)]


def _repeat(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    x, times = _rows(call, given, "x"), given["repeats"]
    dim = x.dim + len(times) - len(x.value.dims)
    if dim < 0 or times[dim] != 1:
        refuse(call, "repeats tokens")
    (out,) = walk.emit(call, given, "x")
    return [replace(x, value=out, dim=dim)]


def _slice(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """Rows of a table from the position on, the last tokens, or a part of each token."""
    x, start = given["x"], given.get("start")
    end, step = given.get("end"), given.get("step")
    if not isinstance(x, TokenRows | Fixed):
        refuse(call, "takes a part of something that is neither a table nor tokens")
    dim, start, end = normal(given.get("dim") or 0, x.value), start or 0, 2**63 - 1 if end is None else end
    if isinstance(x, Fixed):
        if (
            not same(start, POSITION)
            or not same(symbols.add(end, symbols.mul(start, -1)), LENGTH)
            or step not in (1, None)
        ):
            refuse(call, "takes something else from a table than the rows of the tokens' positions")
        out = walk.call("aten.index_select.default", x.value, dim, walk.positions.value, like=x.value)
        return [replace(walk.positions, value=out, dim=dim)]
    if dim != x.dim:
        (out,) = walk.emit(call, given, "x")
        return [replace(x, value=out)]
    to_end = same(end, x.count) or (isinstance(end, int) and end >= x.most)
    if not to_end or step not in (1, None):
        refuse(call, "takes some of the tokens that are not the last ones")
    if start == 0:
        return [x]
    kept = -start if isinstance(start, int) else symbols.add(x.count, symbols.mul(start, -1))
    if x.wanted or not (same(kept, KEEP) or (isinstance(kept, int) and kept > 0)):
        refuse(call, "takes some of the tokens that are not the last ones")
    return [walk.wanted(x, kept, kept if isinstance(kept, int) else x.most)]


def _select(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """One of the elements along a dim, which goes away; of the tokens only the last."""
    x, index = _rows(call, given, "x"), given["index"]
    if normal(given["dim"], x.value) != x.dim:
        return list(_along("dim")(walk, call, given))  # type: ignore[arg-type]
    is_last = same(index, -1) or same(index, symbols.add(x.count, -1)) or (x.most == 1 and index == 0)
    if not is_last or (x.wanted and x.most != 1):
        refuse(call, "takes a token that is not the last one")
    return [_without_dim(walk, call, x if x.most == 1 else walk.wanted(x, 1, 1))]


def _without_dim(walk: Walk, call: OpCall, x: TokenRows) -> TokenRows:
    """Rows of a dim that the old graph takes away: they take the place of a dim of 1 before it."""
    dims = x.value.dims
    if not x.dim or dims[x.dim - 1] != 1:
        refuse(call, "takes away the dim of the tokens")
    sizes = [*dims[: x.dim - 1], walk.count(x), *dims[x.dim + 1 :]]
    return replace(x, value=walk.call("aten.view_copy.default", x.value, sizes, like=x.value), dim=x.dim - 1)


# ---- rotary embeddings


def _rotary(walk: Walk, call: OpCall, given: Given) -> list[TokenRows]:
    """Queries and keys [1, S, H, D] by rows of the tables that are those of the positions."""
    q, k = _rows(call, given, "xq"), _rows(call, given, "xk")
    if _agree(call, [q, k]).dim != 1 or q.wanted:
        refuse(call, "does not turn [1, tokens, heads, depth]")
    changed: dict[str, Any] = {}
    if "start" in given:
        if same(given["start"], POSITION) and all(isinstance(given[name], Fixed) for name in ("cos", "sin")):
            changed = {name: _gathered(walk, given[name]) for name in ("cos", "sin")}
        elif given["start"] != 0:
            refuse(call, "turns from another place than the position")
        changed["start"] = 0
    tables = [changed.get(name, given[name]) for name in ("cos", "sin")]
    if any(not isinstance(table, TokenRows) or table.dim != 0 or table.wanted for table in tables):
        refuse(call, "turns tokens by their place in the call, not by their positions")
    outs = walk.emit(call, given, "xq", "xk", "cos", "sin", **changed)
    return [replace(q, value=outs[0]), replace(k, value=outs[1])]


def _gathered(walk: Walk, table: Fixed) -> TokenRows:
    out = walk.call("aten.index_select.default", table.value, 0, walk.positions.value, like=table.value)
    return replace(walk.positions, value=out)


def _of(family: str, *has: str) -> list[str]:
    """Ops of a family that have these arguments."""
    ops = ((name, op, {argument.name for argument in arguments_of(op)}) for name, op in REGISTRY.items())
    return [name for name, op, arguments in ops if op.family == family and arguments.issuperset(has)]


_TO_CODES = ("quantize", "dequantize")
RULES: dict[str, Rule] = {
    **dict.fromkeys(_of("elementwise"), _elementwise),
    **dict.fromkeys(("aten.arange.default", "aten.arange.start", "aten.arange.start_step"), _range),
    **dict.fromkeys((*Q4, *ANY), _last_dim("x", optional=("residual",))),
    **dict.fromkeys(("et_vk.linear_qcs4w.default", "aten._weight_int8pack_mm.default"), _last_dim("x")),
    **dict.fromkeys(("et_vk.rms_norm.default", "aten.native_layer_norm.default"), _last_dim("x")),
    **dict.fromkeys(("hightide.route_experts.default", "hightide.head_linear.default"), _last_dim("x")),
    "hightide.experts.default": _last_dim("x", "chosen", "shares"),
    "torchao.choose_qparams_affine.default": _last_dim("x"),
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default": _last_dim("x"),
    **{f"quantized_decomposed.{kind}_per_token.default": _last_dim("x", "scale", "zero") for kind in _TO_CODES},
    "et_vk.linear_dq8ca_q4gsw.default": _last_dim("x", "x_scale", "x_zero"),
    **dict.fromkeys(("aten._softmax.default", "aten._log_softmax.default"), _along("dim")),
    **dict.fromkeys(
        (*_of("reduce", "dim"), "aten.topk.default", "aten.sort.default", "aten.cumsum.default"), _along("dim")
    ),
    **dict.fromkeys(("aten.split_with_sizes_copy.default", "aten.split_with_sizes.default"), _along("dim")),
    "aten.flip.default": _along("dims"),
    **dict.fromkeys(_of("embedding"), _table),
    "hightide.media_rows.default": _media,
    "aten.index.Tensor": _index,
    "aten.index_select.default": _index_select,
    "aten.gather.default": _gather,
    **dict.fromkeys(("aten.mm.default", "aten.bmm.default", "aten.addmm.default"), _product),
    **dict.fromkeys(("aten.full_like.default", "aten.zeros_like.default", "aten.ones_like.default"), _same_dims),
    **dict.fromkeys(REGISTRY["aten.clone.default"].names, _same_dims),
    **dict.fromkeys(REGISTRY["aten.view_copy.default"].names, _view),
    **dict.fromkeys(REGISTRY["aten.squeeze_copy.dims"].names, _squeeze),
    **dict.fromkeys(REGISTRY["aten.unsqueeze_copy.default"].names, _unsqueeze),
    **dict.fromkeys(PERMUTES, _permute),
    **dict.fromkeys(("aten.expand_copy.default", "aten.expand.default"), _expand),
    "aten.repeat.default": _repeat,
    "aten.cat.default": _cat,
    **dict.fromkeys(("aten.slice_copy.Tensor", "aten.slice.Tensor"), _slice),
    **dict.fromkeys(("aten.select_copy.int", "aten.select.int"), _select),
    **dict.fromkeys(("et_vk.apply_rotary_emb.default", "et_vk.apply_rotary_emb_hf.default"), _rotary),
}
