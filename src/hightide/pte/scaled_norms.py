"""Norms that a delegate's graph scales by something else than a weight for each element of a row.

The exporter for Vulkan looks for a norm that is multiplied, and takes what multiplies it for the weight: a constant
number, or a gate as large as the norm itself. Here that is a norm with ones for weights, and the product after it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hightide.graph.blob import Blob
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import TensorValue, Value
from hightide.ops.arrays import numpy_dtype

RMS_NORM, MUL = "et_vk.rms_norm.default", "aten.mul.Tensor"


def with_row_weights(graph: Graph) -> Graph:
    """The graph with norms whose weights are rows; as it is where they all are."""
    values: list[Value] = list(graph.values)
    calls: list[OpCall] = []
    for call in graph.calls:
        if call.name != RMS_NORM or _is_row(values, call):
            calls.append(call)
            continue
        x, out = (values[id] for id in (call.args["x"], call.out))
        assert isinstance(x, TensorValue) and isinstance(out, TensorValue)
        data = np.ones(x.dims[-1], numpy_dtype(x.dtype)).tobytes()
        ones = TensorValue(len(values), x.dims[-1:], x.dtype, x.dtype, Blob(data, 0, len(data)))
        normed = TensorValue(ones.id + 1, x.dims, out.dtype, out.dtype)
        values += [ones, normed]
        calls.append(replace(call, args={**call.args, "weight": ones.id}, out=normed.id))
        calls.append(OpCall(0, MUL, {"a": normed.id, "b": call.args["weight"]}, call.out))
    if len(calls) == len(graph.calls):
        return graph
    return replace(graph, values=tuple(values), calls=tuple(replace(call, index=n) for n, call in enumerate(calls)))


def _is_row(values: list[Value], call: OpCall) -> bool:
    """Whether it is a norm as the op has it; what is no tensor at all is refused elsewhere."""
    x, weight, out = (values[id] for id in (call.args["x"], call.args["weight"], call.out))
    if not (isinstance(x, TensorValue) and isinstance(weight, TensorValue) and isinstance(out, TensorValue)):
        return True
    return not x.dims or weight.dims == x.dims[-1:]
