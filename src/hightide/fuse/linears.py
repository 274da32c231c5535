"""Passes around linears: gate and up in one with their activation, an activation or a residual as they write."""

from __future__ import annotations

from dataclasses import replace

from hightide.fuse.joining import ADAPTED, ANY, Q4, LinearForm, join_linears, read_linear
from hightide.fuse.live_dims import CAT
from hightide.fuse.rewriter import Rewriter, either_way
from hightide.graph.graph import OpCall
from hightide.ops import REGISTRY

VIEW = "aten.view_copy.default"
ACTIVATIONS = {"hightide.silu_mul.default": "silu", "hightide.gelu_mul.default": "gelu_tanh"}


def unflatten(r: Rewriter) -> None:
    """A linear of x viewed as a matrix, whose result is viewed again: the linear of x as it is, viewed."""
    for call in r.calls(*Q4, *ANY, ADAPTED):
        made, linear = r.tensor(call.out), read_linear(r, call)
        source, views = r.behind_views(call.args["x"])
        dims, users = r.tensor(source).dims, r.users(made.id)
        if not views or "sizes" not in views[0].args or linear is None or linear.residual is not None:
            continue
        if r.live_dims(source)[-1:] != r.tensor(call.args["x"]).dims[-1:] or r.is_written(made.id):
            continue
        if r.is_output(made.id) or not all(REGISTRY[user.name].aliases for user in users):
            continue
        out = r.new_tensor((*dims[:-1], made.dims[-1]), made.dtype)
        sizes = _with_last(r, views[0].args["sizes"], made.dims[-1])
        viewed = OpCall(0, VIEW, {"x": out, "sizes": sizes}, made.id)
        if r.replace([call], [replace(call, args={**call.args, "x": source}, out=out), viewed]):
            for user in users:  # of a view by sizes only the number of elements counts
                if "sizes" in user.args:
                    r.replace([user], [replace(user, args={**user.args, "x": out})])
            r.drop(made.id)


def _with_last(r: Rewriter, sizes: int, last: int) -> int:
    """The sizes of a view with another last one."""
    literal = r.literal(sizes)
    if isinstance(literal, tuple):
        return r.new_literal((*literal[:-1], last))
    return r.new_list((*r.items(sizes)[:-1], r.new_literal(last)))


def plain_views(r: Rewriter) -> None:
    """Exporters view a linear's result [1, S, N] as (1, S, N), and join one tensor: such copies are left out."""
    for call in r.calls(VIEW, CAT):
        source, *others = [call.args["x"]] if call.name == VIEW else r.items(call.args["tensors"])
        out, given, made = call.out, r.tensor(source), r.tensor(call.out)
        same = given.dims == made.dims and given.dtype == made.dtype and r.live_dims(source) == r.live_dims(out)
        plain = not others if call.name == CAT else read_linear(r, r.maker(source)) is not None
        if same and plain and not r.is_output(out) and not r.is_written(out) and not r.is_written(source):
            r.rename(out, source)
            r.replace([call], [])


def gated(r: Rewriter) -> None:
    """activation(x @ gate.T) * (x @ up.T) as one linear."""
    for call in r.calls("aten.mul.Tensor", *ACTIVATIONS):
        for activation, gate, up, passed in _activated(r, call):
            found = _gate_and_up(r, gate, up)
            if found is None:
                continue
            joined, makers = found
            if r.live_dims(call.out) == (*r.live_dims(joined.x)[:-1], joined.columns(r) // 2):
                fused = replace(joined, activation=activation)
                if r.replace([*makers, *passed, call], [fused.call(r, call.out)]):
                    break


def _activated(r: Rewriter, call: OpCall) -> list[tuple[str, int, int, list[OpCall]]]:
    """Ways to read a product as activation(gate) * up: (activation, gate, up, calls in between)."""
    if call.name in ACTIVATIONS:
        return [(ACTIVATIONS[call.name], call.args["a"], call.args["b"], [])]
    found: list[tuple[str, int, int, list[OpCall]]] = []
    for side, up in either_way(call):
        made = r.maker(side)
        if made is None:
            continue
        if made.name == "aten.silu.default":
            found.append(("silu", made.args["a"], up, [made]))
        elif made.name == "aten.gelu.default":
            found.append((_gelu(r, made), made.args["a"], up, [made]))
        elif made.name == "aten.mul.Tensor":  # exporters take silu apart: gate * sigmoid(gate)
            for gate, gain in either_way(made):
                sigmoid = r.maker(gain)
                if sigmoid is not None and sigmoid.name == "aten.sigmoid.default" and sigmoid.args["a"] == gate:
                    found.append(("silu", gate, up, [made, sigmoid]))
    return found


def _gate_and_up(r: Rewriter, gate: int, up: int) -> tuple[LinearForm, list[OpCall]] | None:
    """The linear that gives gate and up side by side, and the calls it takes the place of."""
    (gate, gate_views), (up, up_views) = r.behind_views(gate), r.behind_views(up)
    makers = [call for call in (r.maker(gate), r.maker(up)) if call is not None]
    if len(makers) < 2:
        return None
    if makers[0] is makers[1]:  # already one linear, whose columns are split
        split = makers[0]
        if not split.name.startswith("aten.split_with_sizes") or r.items(split.out) != (gate, up):
            return None
        source = r.maker(split.args["x"])
        linear = read_linear(r, source)
        widths = [r.tensor(id).dims[-1] for id in (gate, up)]
        if source is None or linear is None or not linear.plain or len(linear.weights) > (linear.group is not None) + 1:
            return None
        if len(set(widths)) > 1 or sum(widths) != r.tensor(split.args["x"]).dims[-1]:
            return None
        return linear, [source, split, *gate_views, *up_views]
    linears = [linear for maker in makers if (linear := read_linear(r, maker)) is not None]
    if len(linears) < 2 or linears[0].columns(r) != linears[1].columns(r):
        return None
    joined = join_linears(r, linears, whole=True)
    return None if joined is None else (joined, [*makers, *gate_views, *up_views])


def activated(r: Rewriter) -> None:
    """gelu(linear(h)), or silu: where the linear writes."""
    for call in r.calls("aten.gelu.default", "aten.silu.default"):
        made, views = r.behind_views(call.args["a"])
        maker = r.maker(made)
        linear = read_linear(r, maker)
        if maker is None or linear is None or linear.activation or linear.residual is not None:
            continue
        name = "silu" if call.name == "aten.silu.default" else _gelu(r, call)
        fused = replace(linear, activation=name, gated=False)
        if not views:
            r.replace([maker, call], [fused.call(r, call.out)])
        elif len(views) == 1 and "sizes" in views[0].args:
            out = r.new_tensor(r.tensor(made).dims, r.tensor(made).dtype)
            view = replace(views[0], args={**views[0].args, "x": out}, out=call.out)
            r.replace([maker, *views, call], [fused.call(r, out), view])


def _gelu(r: Rewriter, call: OpCall) -> str:
    return "gelu_tanh" if r.option(call, "approximate") == "tanh" else "gelu"


def residual(r: Rewriter) -> None:
    """x + linear(h): added where the linear writes."""
    for call in r.calls("aten.add.Tensor"):
        if r.option(call, "alpha") != 1:
            continue
        for other, side in either_way(call):
            made, views = r.behind_views(side)
            maker = r.maker(made)
            linear = read_linear(r, maker)
            if not r.is_tensor(other) or not r.is_tensor(side):
                continue
            dtypes = {r.tensor(id).dtype for id in (made, other, call.out)}
            if maker is None or linear is None or linear.residual is not None or len(dtypes) > 1:
                continue
            if len({r.live_dims(id) for id in (made, side, other, call.out)}) == 1:
                fused = [replace(linear, residual=other).call(r, call.out)]
            elif linear.group is None and _one_list_of_rows(r, made, side, other, call.out):
                fused = _by_rows(r, linear, made, side, other, call.out)
            else:
                continue
            if r.replace([maker, *views, call], fused):
                break


def _one_list_of_rows(r: Rewriter, made: int, side: int, other: int, out: int) -> bool:
    """Whether these are [1, ..., rows, 1, ..., N], all but `made` with rows at the same place.

    There are as many rows then, or one that is for all.
    """
    widths = {r.live_dims(id)[-1:] for id in (made, side, other)}
    places = _row_axes(r, side) | _row_axes(r, other)
    same = len({r.tensor(id).dims for id in (side, other, out)}) == 1 and widths == {r.tensor(made).dims[-1:]}
    return same and len(places) < 2 and len(_row_axes(r, made)) < 2


def _row_axes(r: Rewriter, id: int) -> set[int]:
    return {axis for axis, size in enumerate(r.live_dims(id)[:-1]) if size != 1}


def _by_rows(r: Rewriter, linear: LinearForm, made: int, side: int, other: int, out: int) -> list[OpCall]:
    """A linear and a residual that have other dims, or may have, but each one list of rows."""
    value = r.tensor(made)
    residual, total = (r.new_tensor(value.dims, value.dtype) for _ in range(2))
    return [
        OpCall(0, VIEW, {"x": other, "sizes": _rows_at(r, made, _row_axes(r, made))}, residual),
        replace(linear, residual=residual).call(r, total),
        OpCall(0, VIEW, {"x": total, "sizes": _rows_at(r, out, _row_axes(r, side) | _row_axes(r, other))}, out),
    ]


def _rows_at(r: Rewriter, id: int, axes: set[int]) -> int:
    """The sizes of a view with the dims of a tensor, however many rows there are at the one axis."""
    *before, width = r.tensor(id).dims
    at = next(iter(axes), 0)
    return r.new_literal((*(-1 if axis == at else 1 for axis in range(len(before))), width))
