"""A graph of XNNPACK nodes as one of hightide's ops, between the tensors that a method passes."""

from __future__ import annotations

from collections.abc import Sequence

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.program_file import EValue, TensorSpec
from hightide.formats.xnngraph import INPUT, OUTPUT, XnnGraph, XnnValue
from hightide.graph.graph import GraphFile
from hightide.graph.values import Dims, TensorValue
from hightide.pte.xnnpack.elements import ELEMENTS
from hightide.pte.xnnpack.images import IMAGES
from hightide.pte.xnnpack.products import PRODUCTS
from hightide.pte.xnnpack.tensors import LIMITS, Order, Tensors, dims_in
from hightide.pte.xnnpack.weights import float_type

NODES = {**ELEMENTS, **PRODUCTS, **IMAGES}


def translated(graph: XnnGraph, passed: Sequence[EValue]) -> GraphFile:
    """`passed` are the method's values that the delegate is called with: inputs, then outputs."""
    if graph.externals != len(passed):
        raise UnsupportedError(f"it takes and gives {graph.externals} values, but is called with {len(passed)}")
    places = {value.external: id for id, value in enumerate(graph.values) if value.external is not None}
    outputs = [id for _, id in sorted(places.items()) if graph.values[id].flags & OUTPUT]
    t = Tensors(graph)
    inputs = [_input(t, places.get(n), passed[n]) for n in range(graph.externals - len(outputs))]
    for node in graph.nodes:
        if node.kind not in NODES:
            raise UnsupportedError(f"{node}: XNNPACK's {node.kind} is not supported")
        try:
            NODES[node.kind](t, node)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node}: {error}") from None
    taken = set(inputs)
    given = [_output(t, id, spec, taken) for id, spec in zip(outputs, passed[len(inputs) :], strict=True)]
    return GraphFile(tuple(t.values), tuple(t.calls), tuple(inputs), tuple(given))


def _input(t: Tensors, id: int | None, spec: EValue) -> int:
    """A tensor that the method passes; one that no node reads has only the method's word for it."""
    if id is None or not t.graph.values[id].flags & INPUT:
        if not isinstance(spec, TensorSpec):
            raise UnsupportedError("an input that is no tensor is not supported")
        return t.tensor(spec.dims, spec.dtype).id
    value = t.graph.values[id]
    order, dtype = _order(value, spec), _host_type(value)
    dims = dims_in(value.dims, order)
    given = tensor = t.tensor(() if _is_scalar(value, spec) else dims, dtype)
    if given.dims != dims:
        tensor = t.call("aten.view_copy.default", given, dims, out=t.tensor(dims, dtype))
    if value.datatype in LIMITS:
        tensor = t.dequantized(value, tensor)
    t.hold(id, tensor, order)
    return given.id


def _output(t: Tensors, id: int, spec: EValue, taken: set[int]) -> int:
    """The tensor that the method gets: its own, so neither an input nor a constant nor another output."""
    value = t.graph.values[id]
    tensor: TensorValue = t.ordered(id, _order(value, spec))
    if value.datatype in LIMITS:
        tensor = t.quantized(value, tensor)
    if tensor.id in taken or tensor.constant is not None:
        tensor = t.call("aten.clone.default", tensor, out=t.tensor(tensor.dims, tensor.dtype))
    taken.add(tensor.id)
    return tensor.id


def _host_type(value: XnnValue) -> str:
    if value.datatype in LIMITS:
        return LIMITS[value.datatype][2]
    if value.datatype not in ("fp32", "fp16"):
        raise UnsupportedError(f"an input of {value.datatype} is not supported")
    return float_type(value)


def _order(value: XnnValue, spec: EValue) -> Order:
    """The tensor that a method passes may have its dims in another order in memory, which is what XNNPACK is told."""
    plain: Order = tuple(range(len(value.dims)))
    if not isinstance(spec, TensorSpec) or len(spec.dims) != len(value.dims) or spec.dim_order == plain:
        return plain
    dims: Dims = tuple(spec.dims[dim] for dim in spec.dim_order)
    if dims != value.dims:
        raise ProgramError(f"a tensor of {list(dims)} is passed where the delegate has {list(value.dims)}")
    return spec.dim_order


def _is_scalar(value: XnnValue, spec: EValue) -> bool:
    return value.dims == (1,) and isinstance(spec, TensorSpec) and spec.dims == ()
