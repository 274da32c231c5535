"""What a method takes and gives, and what the constant ones give: read from the file, nothing is built for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hightide.formats.instructions import MoveCall
from hightide.formats.program_file import EValue, MethodFile, TensorSpec, ValueListSpec
from hightide.ops.arrays import numpy_dtype
from hightide.planning.levels import InputSpec
from hightide.pte.interpreter import tensor_array


@dataclass(frozen=True)
class MethodInfo:
    """What a method takes and gives."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]

    def __repr__(self) -> str:
        takes = ", ".join(f"{spec.name}: {describe_spec(spec)}" for spec in self.inputs)
        return f"({takes}) -> {', '.join(describe_spec(spec) for spec in self.outputs) or 'nothing'}"


def describe_spec(spec: InputSpec) -> str:
    """`int64[1, ≤47]`"""
    dims = [f"≤{d}" if spec.dynamic and d > 1 else str(d) for d in spec.dims]
    return f"{spec.dtype}[{', '.join(dims)}]"


def describe_method(method: MethodFile) -> MethodInfo:
    inputs = [method.values[id] for id in method.inputs]
    names = [(spec.name if isinstance(spec, TensorSpec) else None) or f"in{n}" for n, spec in enumerate(inputs)]
    if len(inputs) == 2 and _is_int64(inputs[0], 2) and _is_int64(inputs[1], 1):  # forward of an LLM
        names = ["tokens", "input_pos"]
    outputs = [method.values[id] for id in method.outputs]
    return MethodInfo(
        method.name,
        tuple(_spec(name, value) for name, value in zip(names, inputs, strict=True)),
        tuple(_spec(f"out{n}", value) for n, value in enumerate(outputs)),
    )


def is_constant(method: MethodFile) -> bool:
    """Whether a method only states constants, such as `get_max_seq_len`."""
    computed = (spec for id in method.outputs if isinstance(spec := method.values[id], TensorSpec))
    moves = all(isinstance(i, MoveCall) for i in method.instructions)
    return not method.inputs and moves and all(spec.constant is not None for spec in computed)


def constant_result(method: MethodFile) -> Any:
    """What a constant method gives, as plain Python values and arrays."""
    values = list(method.values)
    for move in method.instructions:
        if isinstance(move, MoveCall):
            values[move.target] = values[move.source]

    def plain(value: EValue) -> Any:
        if isinstance(value, TensorSpec):
            assert value.constant is not None
            return tensor_array(value, value.constant.view())
        if isinstance(value, ValueListSpec):
            return [None if item == -1 else plain(values[item]) for item in value.items]
        return list(value) if isinstance(value, tuple) else value

    results = [plain(values[id]) for id in method.outputs]
    return results[0] if len(results) == 1 else results


def _is_int64(spec: EValue, rank: int) -> bool:
    if not isinstance(spec, TensorSpec) or spec.dtype != "int64" or len(spec.dims) != rank:
        return False
    return rank != 2 or spec.dims[0] == 1


def _spec(name: str, value: EValue) -> InputSpec:
    match value:
        case TensorSpec():
            return InputSpec(name, value.dims, numpy_dtype(value.dtype), value.dynamic)
        case bool():
            return InputSpec(name, (), "bool", False)
        case int():
            return InputSpec(name, (), "int64", False)
        case float():
            return InputSpec(name, (), "float64", False)
        case _:
            return InputSpec(name, (), "object", False)  # strings and lists: constant methods give them
