"""Nodes that work on elements, and nodes that move them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hightide.errors import ProgramError
from hightide.formats.xnngraph import XnnNode
from hightide.graph.values import TensorValue
from hightide.pte.xnnpack.tensors import Order, Tensors

Translate = Callable[[Tensors, XnnNode], None]

BINARY = {
    "Add": "aten.add.Tensor",
    "Subtract": "aten.sub.Tensor",
    "Multiply": "aten.mul.Tensor",
    "Div": "aten.div.Tensor",
    "Minimum": "aten.minimum.default",
    "Maximum": "aten.maximum.default",
}
UNARY = {
    "Sigmoid": "aten.sigmoid.default",
    "Tanh": "aten.tanh.default",
    "Exp": "aten.exp.default",
    "Log": "aten.log.default",
    "Sin": "aten.sin.default",
    "Cos": "aten.cos.default",
    "Gelu": "aten.gelu.default",
    "Floor": "aten.floor.default",
    "Ceiling": "aten.ceil.default",
    "SquareRoot": "aten.sqrt.default",
    "ReciprocalSquareRoot": "aten.rsqrt.default",
    "Abs": "aten.abs.default",
    "Negate": "aten.neg.default",
    "Square": "aten.square.default",
    "Hardswish": "aten.hardswish.default",
}


def unary(t: Tensors, node: XnnNode) -> None:
    x = t.held(t.id(node, "input"))
    extra = {"LeakyReLU": "negative_slope", "ELU": "alpha"}.get(node.kind)
    name = {"LeakyReLU": "aten.leaky_relu.default", "ELU": "aten.elu.default"}.get(node.kind) or UNARY[node.kind]
    numbers = (node.floats[extra],) if extra else ()
    t.give(node, t.call(name, x.tensor, *numbers, out=t.result(node, x.order)), x.order)


def binary(t: Tensors, node: XnnNode) -> None:
    a, b, order = operands(t, node)
    t.give(node, t.call(BINARY[node.kind], a, b, out=t.result(node, order)), order)


def prelu(t: Tensors, node: XnnNode) -> None:
    """max(x, 0) + slope * min(x, 0)"""
    x, slope, order = operands(t, node)
    above, below, sloped = (t.tensor(x.dims, x.dtype) for _ in range(3))
    t.call("aten.relu.default", x, out=above)
    t.call("aten.minimum.default", x, 0.0, out=below)
    t.call("aten.mul.Tensor", below, slope, out=sloped)
    t.give(node, t.call("aten.add.Tensor", above, sloped, out=t.result(node, order)), order)


def clamp(t: Tensors, node: XnnNode) -> None:
    """The node's own limits say to what."""
    x = t.held(t.id(node, "input"))
    t.give(node, x.tensor, x.order)


def copy(t: Tensors, node: XnnNode) -> None:
    x = t.held(t.id(node, "input"))
    t.moved(node, x.tensor, x.order)


def convert(t: Tensors, node: XnnNode) -> None:
    """To codes and back, between float types, or to codes with a scale per row, which whoever reads them finds."""
    id, out = t.id(node, "input"), t.value(node, "output")
    if out.datatype == "qdint8":
        t.dynamic[t.id(node, "output")] = id
        return
    x, made = t.held(id), t.result(node, t.held(id).order)
    same = x.tensor.dtype == made.dtype
    t.give(node, x.tensor if same else t.call("aten._to_copy.default", x.tensor, out=made), x.order)


def softmax(t: Tensors, node: XnnNode) -> None:
    t.give(node, t.call("aten._softmax.default", t.plain(t.id(node, "input")), -1, False, out=t.result(node)))


def operands(t: Tensors, node: XnnNode) -> tuple[TensorValue, TensorValue, Order]:
    """The two inputs, with their dims in one order, which is the output's."""
    ids = t.id(node, "input1"), t.id(node, "input2")
    ranks = [len(t.graph.values[id].dims) for id in ids]
    first = max(ids, key=lambda id: (len(t.graph.values[id].dims), t.graph.values[id].constant is None))
    order = t.held(first).order
    small = [id for id, rank in zip(ids, ranks, strict=True) if rank < max(ranks)]
    if any(t.graph.values[id].constant is None for id in small):  # its dims are the last ones of the others
        return t.plain(ids[0]), t.plain(ids[1]), tuple(range(max(ranks)))
    a, b = (_widened(t, id, order) if id in small else t.ordered(id, order) for id in ids)
    return a, b, order


def _widened(t: Tensors, id: int, order: Order) -> TensorValue:
    """A constant with as many dims as `order` has, 1 in front."""
    dims = t.graph.values[id].dims
    wide = (1,) * (len(order) - len(dims)) + dims
    moves = tuple(order.index(dim) for dim in range(len(order)))
    return t.constant(id, tuple(wide[d] for d in moves), lambda array: np.transpose(array.reshape(wide), moves))


# ---- movement


def transpose(t: Tensors, node: XnnNode) -> None:
    """Nothing is moved before somebody needs the dims in their new order."""
    x, moves = t.held(t.id(node, "input")), node.lists["perm"]
    if sorted(moves) != list(range(len(x.order))):
        raise ProgramError(f"{node}: {list(moves)} does not order {len(x.order)} dims")
    t.moved(node, x.tensor, tuple(x.order[dim] for dim in moves))


def reshape(t: Tensors, node: XnnNode) -> None:
    sizes = tuple(size or -1 for size in node.lists["new_shape"])
    out = t.result(node)
    t.call("aten.view_copy.default", t.plain(t.id(node, "input")), sizes, out=out)
    t.moved(node, out, tuple(range(len(out.dims))))


def slices(t: Tensors, node: XnnNode) -> None:
    x, dims = t.held(t.id(node, "input")), t.value(node, "input").dims
    starts, sizes, tensor = node.lists["offsets"], node.lists["sizes"], x.tensor
    if not len(starts) == len(sizes) == len(dims):
        raise ProgramError(f"{node}: {len(starts)} offsets and {len(sizes)} sizes do not fit {list(dims)}")
    for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if (start, size) != (0, dims[dim]):
            if start + size > dims[dim]:
                raise ProgramError(f"{node}: {size} places from {start} on are not in {list(dims)}")
            at = x.order[dim]
            out = t.tensor((*tensor.dims[:at], size, *tensor.dims[at + 1 :]), tensor.dtype)
            tensor = t.call("aten.slice_copy.Tensor", tensor, at, start, start + size, 1, out=out)
    t.moved(node, tensor, x.order)


def pad(t: Tensors, node: XnnNode) -> None:
    x, before, after = t.held(t.id(node, "input")), node.lists["pre_paddings"], node.lists["post_paddings"]
    if not len(before) == len(after) == len(x.order):
        raise ProgramError(f"{node}: {len(before)} and {len(after)} paddings do not fit {len(x.order)} dims")
    at = [x.order.index(dim) for dim in reversed(range(len(x.order)))]  # the tensor's last dim first
    pads = tuple(pad for dim in at for pad in (before[dim], after[dim]))
    out = t.result(node, x.order)
    t.moved(
        node, t.call("aten.constant_pad_nd.default", x.tensor, pads, node.floats["padding_value"], out=out), x.order
    )


def concatenate(t: Tensors, node: XnnNode) -> None:
    names = [f"input{n + 1}" for n in range(int(node.kind[-1]))]
    ids, axis = [t.id(node, name) for name in names], node.numbers["axis"]
    order = t.held(next((id for id in ids if t.graph.values[id].constant is None), ids[0])).order
    if axis >= len(order) or any(len(t.graph.values[id].dims) != len(order) for id in ids):
        raise ProgramError(f"{node}: its inputs have no common dim {axis}")
    parts = [t.ordered(id, order) for id in ids]
    t.moved(node, t.call("aten.cat.default", parts, order[axis], out=t.result(node, order)), order, names)


ELEMENTS: dict[str, Translate] = {
    **dict.fromkeys((*UNARY, "LeakyReLU", "ELU"), unary),
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys((f"Concatenate{n}" for n in range(2, 6)), concatenate),
    "PReLU": prelu,
    "Clamp": clamp,
    "Copy": copy,
    "Convert": convert,
    "Softmax": softmax,
    "StaticTranspose": transpose,
    "StaticReshape": reshape,
    "StaticSlice": slices,
    "StaticConstantPad": pad,
}
