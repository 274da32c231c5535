"""Passes around linears: gate and up in one with their activation, an activation or a residual as they write."""

from __future__ import annotations

from dataclasses import replace

from hightide.fuse.joining import ANY, Q4, LinearForm, join_linears, read_linear
from hightide.fuse.rewriter import Rewriter, either_way
from hightide.graph.graph import OpCall
from hightide.ops import REGISTRY

VIEW = "aten.view_copy.default"
ACTIVATIONS = {"hightide.silu_mul.default": "silu", "hightide.gelu_mul.default": "gelu_tanh"}


def unflatten(r: Rewriter) -> None:
    """A linear of x viewed as a matrix, whose result is viewed again: the linear of x as it is, viewed."""
    for call in r.calls(*Q4, *ANY):
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
    """Exporters view a linear's result [1, S, N] as (1, S, N): such a view is left out."""
    for call in r.calls(VIEW):
        source, out = call.args["x"], call.out
        same = r.tensor(source).dims == r.tensor(out).dims and r.live_dims(source) == r.live_dims(out)
        if same and read_linear(r, r.maker(source)) and not r.is_output(out) and not r.is_written(out):
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
        maker = r.maker(call.args["a"])
        linear = read_linear(r, maker)
        if maker is None or linear is None or linear.activation or linear.residual is not None:
            continue
        name = "silu" if call.name == "aten.silu.default" else _gelu(r, call)
        r.replace([maker, call], [replace(linear, activation=name, gated=False).call(r, call.out)])


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
            dims = {r.live_dims(id) for id in (side, other, call.out)}
            dtypes = {r.tensor(id).dtype for id in (made, other, call.out)}
            if maker is None or linear is None or linear.residual is not None or len(dims) > 1 or len(dtypes) > 1:
                continue
            if r.live_dims(made) in dims:
                fused = [replace(linear, residual=other).call(r, call.out)]
            elif len(views) == 1 and "sizes" in views[0].args and _is_matrix_of(r, made, other):
                fused = _by_matrix(r, linear, made, views[0].args["sizes"], other, call.out)
            else:
                continue
            if r.replace([maker, *views, call], fused):
                break


def _is_matrix_of(r: Rewriter, made: int, other: int) -> bool:
    """Whether a tensor is a matrix of the rows of another."""
    return len(r.tensor(made).dims) == 2 and r.live_dims(made)[-1] == r.live_dims(other)[-1]


def _by_matrix(r: Rewriter, linear: LinearForm, made: int, sizes: int, other: int, out: int) -> list[OpCall]:
    """A linear whose result is a matrix that is viewed as `sizes`, and a residual of these dims."""
    matrix = r.tensor(made)
    rows, total = (r.new_tensor(matrix.dims, matrix.dtype) for _ in range(2))
    return [
        OpCall(0, VIEW, {"x": other, "sizes": r.new_literal((-1, matrix.dims[-1]))}, rows),
        replace(linear, residual=rows).call(r, total),
        OpCall(0, VIEW, {"x": total, "sizes": sizes}, out),
    ]
