"""Linears and matrix products, over floats and over codes."""

from __future__ import annotations

from math import prod

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.xnngraph import PerChannel, PerGroup, PerTensor, PerToken, XnnNode, XnnValue
from hightide.graph.blob import Blob, Zeros
from hightide.graph.values import TensorValue
from hightide.pte.xnnpack.elements import Translate
from hightide.pte.xnnpack.tensors import Order, Tensors, dims_in
from hightide.pte.xnnpack.weights import NIBBLES, check_constant, row_scales

TRANSPOSED, TRANSPOSED_A = 1, 2  # flags: the second operand is [K, N], or of a product [N, K]; the first is [K, M]
CODES = (-128, 127)  # of activations that are rounded per row


def fully_connected(t: Tensors, node: XnnNode) -> None:
    weight, transposed = t.value(node, "filter"), bool(node.numbers["flags"] & TRANSPOSED)
    if node.numbers["flags"] & ~TRANSPOSED:
        raise UnsupportedError(f"flags {node.numbers['flags']} are not supported")
    if len(weight.dims) != 2:
        raise ProgramError(f"{node}: a weight of {list(weight.dims)} is no matrix")
    if weight.constant is not None and not transposed:
        check_constant(weight)
        if weight.datatype in NIBBLES:
            t.give(node, _linear_4bit(t, node, weight))
            return
        if weight.datatype in ("qcint8", "qint8"):
            t.give(node, _linear_8bit(t, node, weight))
            return
    matrix = t.ordered(t.id(node, "filter"), (1, 0) if transposed else (0, 1))
    bias = t.plain(node.ids["bias"]) if "bias" in node.ids else None
    t.give(node, t.call("aten.linear.default", rows_of(t, node), matrix, bias, out=t.result(node)))


def _linear_4bit(t: Tensors, node: XnnNode, weight: XnnValue) -> TensorValue:
    rows, columns = weight.dims
    group = weight.scaling.group if isinstance(weight.scaling, PerGroup) else columns
    codes = t.tensor((rows, -(-columns // 2)), "uint8", weight.constant)
    scales = t.tensor((columns // max(group, 1), rows), "float32", row_scales(weight))
    bias = t.plain(node.ids["bias"]) if "bias" in node.ids else None
    id, out = t.id(node, "input1"), t.result(node)
    if id not in t.dynamic:
        x = t.plain(id)
        return t.call("et_vk.linear_q4gsw.default", x, codes, scales, group, bias, out=out)
    x, x_scales, zeros, _ = _row_scales(t, id)
    sums = t.tensor((1,), "int32", Zeros(4))  # for kernels of integers; there is none
    name = "et_vk.linear_dq8ca_q4gsw.default"
    return t.call(name, x, x_scales, zeros, codes, sums, scales, group, bias, out=out)


def _linear_8bit(t: Tensors, node: XnnNode, weight: XnnValue) -> TensorValue:
    rows, scaling = weight.dims[0], weight.scaling
    if isinstance(scaling, PerChannel) and scaling.axis == 0:
        stored = scaling.scales
    elif isinstance(scaling, PerTensor) and scaling.zero == 0:
        data = np.full(rows, scaling.scale, np.float32).tobytes()
        stored = Blob(data, 0, len(data))
    else:
        raise UnsupportedError("a weight of 8 bits whose scales are not those of its rows is not supported")
    codes, scales = t.tensor(weight.dims, "int8", weight.constant), t.tensor((rows,), "float32", stored)
    out = t.call("aten._weight_int8pack_mm.default", rows_of(t, node), codes, scales, out=t.result(node))
    if "bias" in node.ids:
        out = t.call("aten.add.Tensor", out, t.plain(node.ids["bias"]), out=t.result(node))
    return out


def rows_of(t: Tensors, node: XnnNode, order: Order | None = None) -> TensorValue:
    """The input of a product; one that is rounded when the graph runs as the floats that its codes stand for."""
    id = t.id(node, "input1")
    if id not in t.dynamic:
        return t.plain(id) if order is None else t.ordered(id, order)
    x, scales, zeros, block = _row_scales(t, id, order)
    codes, rounded = t.tensor(x.dims, "int8"), t.tensor(x.dims)
    t.call("torchao.quantize_affine.default", x, block, scales, zeros, None, *map(float, CODES), out=codes)
    t.call("torchao.dequantize_affine.default", codes, block, scales, zeros, None, *map(float, CODES), out=rounded)
    source = t.graph.values[t.dynamic[id]].dims
    dims = source if order is None else dims_in(source, order)
    if dims == rounded.dims:
        return rounded
    return t.call("aten.view_copy.default", rounded, (-1, *dims[1:]), out=t.tensor(dims))


def _row_scales(
    t: Tensors, id: int, order: Order | None = None
) -> tuple[TensorValue, TensorValue, TensorValue, tuple[int, ...]]:
    """What is to be rounded, with the rows' scales and zero points, and the dims of a row.

    The dims of the codes themselves are not told: the exporter writes NCHW ones where they are NHWC.
    """
    scaling, source = t.graph.values[id].scaling, t.dynamic[id]
    x = t.plain(source) if order is None else t.ordered(source, order)
    if not isinstance(scaling, PerToken) or scaling.dims not in (1, len(x.dims) - 1) or (order and scaling.dims == 1):
        raise UnsupportedError("codes whose scales are neither of rows nor of images are not supported")
    if scaling.dims > 1:
        flat = t.tensor((x.dims[0], prod(x.dims[1:])))
        x = t.call("aten.view_copy.default", x, (-1, flat.dims[1]), out=flat)
    block = (*(1 for _ in x.dims[1:]), x.dims[-1])
    scales, zeros = t.tensor(x.dims[:-1]), t.tensor(x.dims[:-1], "int8")
    name = "torchao.choose_qparams_affine.default"
    t.call(name, x, "ASYMMETRIC", block, None, *CODES, out=[scales, zeros])
    return x, scales, zeros, block


def matrix_product(t: Tensors, node: XnnNode) -> None:
    ids = t.id(node, "input1"), t.id(node, "input2")
    ranks = [len(t.graph.values[id].dims) for id in ids]
    flags, rank = node.numbers["flags"], ranks[0]
    if ranks[0] != ranks[1] or rank < 2 or flags & ~(TRANSPOSED | TRANSPOSED_A):
        raise UnsupportedError(f"a product of ranks {ranks[0]} and {ranks[1]} with flags {flags} is not supported")
    plain, turned = tuple(range(rank)), (*range(rank - 2), rank - 1, rank - 2)
    x = t.ordered(ids[0], turned if flags & TRANSPOSED_A else plain)
    y = t.ordered(ids[1], turned if flags & TRANSPOSED else plain)
    if rank <= 3:
        name = "aten.bmm.default" if rank == 3 else "aten.mm.default"
        t.give(node, t.call(name, x, y, out=t.result(node)))
        return
    if x.dims[:-2] != y.dims[:-2]:
        raise UnsupportedError(f"a product of {list(x.dims)} and {list(y.dims)} is not supported")
    batches = prod(x.dims[:-2])
    out = t.tensor((batches, x.dims[-2], y.dims[-1]), x.dtype)
    t.call("aten.bmm.default", _stacked(t, x), _stacked(t, y), out=out)
    sizes = [*(t.size_of(x, dim) for dim in range(rank - 1)), t.size_of(y, rank - 1)]
    t.give(node, t.call("aten.view_copy.default", out, sizes, out=t.result(node)))


def _stacked(t: Tensors, x: TensorValue) -> TensorValue:
    """[..., M, K] as [batches, M, K]"""
    rank = len(x.dims)
    out = t.tensor((prod(x.dims[:-2]), *x.dims[-2:]), x.dtype)
    sizes = [-1, t.size_of(x, rank - 2), t.size_of(x, rank - 1)]
    return t.call("aten.view_copy.default", x, sizes, out=out)


PRODUCTS: dict[str, Translate] = {"FullyConnected": fully_connected, "BatchMatrixMultiply": matrix_product}
