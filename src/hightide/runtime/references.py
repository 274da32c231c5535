"""The op calls of a graph on the NumPy references, over a table of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from hightide.errors import FOREIGN, DeviceError, HightideError, InputError, describe
from hightide.graph.graph import Graph, OpCall, input_ids, output_ids
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue
from hightide.ops.arguments import converted
from hightide.ops.arrays import numpy_dtype, read_array
from hightide.ops.binding import mutated_ids
from hightide.ops.blocks.layout import BLOCK_TYPES, dequantize
from hightide.ops.contract import SymIntOp
from hightide.planning.planner import Plan, Planner

FLOATS = ("float16", "bfloat16", "float32", "float64")
Precision: TypeAlias = Literal["float32", "float64"]
Values: TypeAlias = dict[int, Any]  # value id -> array or int, of one run


class References:
    """Runs the calls of a planner's graph one by one, with float tensors held as `dtype`."""

    def __init__(self, planner: Planner, dtype: Precision = "float32") -> None:
        self.graph, self.planner, self.dtype = planner.graph, planner, dtype
        self.last_use = _last_uses(planner.graph)  # call index -> the values that nothing after it reads
        root = planner.aliases.root
        self._written = {root[id] for call in planner.graph.calls for id in mutated_ids(call)}
        self.holders = 0  # sessions that share these
        self._kept: dict[int, np.ndarray] = {}  # constants: reading and unpacking them takes longer than the product

    def run_call(self, call: OpCall, plan: Plan, values: Values) -> None:
        """Put the outputs of a call at a plan's level into `values`; what it writes in place changes there."""
        op, ids = self.planner.ops[call.index], output_ids(self.graph, call)
        if call.index in self.planner.aliases.views:
            source = self.planner.aliases.views[call.index]
            array, dims = self.argument(source, values), tuple(map(int, plan.dims[ids[0]]))  # a file may say True
            if array.size != math.prod(dims):  # at the max dims an op may give less than its file says
                raise InputError(f"{call}: {array.size} elements cannot be viewed as {list(dims)}")
            values[ids[0]] = array.reshape(dims)
            return
        given = {name: self.argument(id, values) for name, id in call.args.items()}
        try:
            result = self.result(call, plan, converted(op, given))
        except HightideError as error:
            raise type(error)(f"{call}: {error}") from None
        except FOREIGN as error:  # from NumPy: types or shapes that the op does not take
            raise InputError(f"{call}: {describe(error)}") from error
        except MemoryError as error:
            raise DeviceError(f"{call}: {error or 'out of memory'}") from error
        if issubclass(op, SymIntOp):
            values[ids[0]] = int(result)
            return
        results = result if isinstance(result, tuple | list) else (result,)
        if len(results) != len(ids):
            raise HightideError(f"internal: the reference of {call} gives {len(results)} outputs, not {len(ids)}")
        root = self.planner.aliases.root
        keep = any(root.get(id) in self._written for id in input_ids(self.graph, call))
        for id, array in zip(ids, results, strict=True):
            array = np.asarray(array)
            if array.shape != plan.dims[id]:
                raise HightideError(
                    f"internal: the reference of {call} gives {list(array.shape)}, its plan says {list(plan.dims[id])}"
                )
            # A reference may return a view; one of memory that is written in place later must keep what it saw.
            values[id] = array.astype(self.held(self.tensor(id).dtype), copy=keep)

    def result(self, call: OpCall, plan: Plan, given: Mapping[str, Any]) -> Any:
        """What the reference of a call gives for arrays and numbers."""
        return self.planner.ops[call.index].evaluate(given)

    def argument(self, id: int, values: Mapping[int, Any]) -> Any:
        """A value as a reference takes it: of this run, or a constant, a literal, a list of values."""
        match self.graph.values[id]:
            case TensorValue() as value:
                return values[id] if id in values else self.constant(value)
            case SymIntValue():
                return values[id]
            case LiteralValue(value=literal):
                return literal
            case ListValue(items=items):
                return tuple(self.argument(item, values) for item in items)

    def input(self, id: int, array: np.ndarray) -> Any:
        """A graph input: an array that ops may write to, or an int."""
        if isinstance(self.graph.values[id], SymIntValue):
            return int(array)
        # The caller's memory must not be written to.
        return array.astype(self.held(self.tensor(id).dtype), copy=id in self._written)

    def output(self, id: int, values: Mapping[int, Any]) -> np.ndarray:
        """A graph output as the caller gets it; floats stay float64 where they are computed so."""
        array = np.asarray(self.argument(id, values))
        value = self.graph.values[id]
        if not isinstance(value, TensorValue):
            return array
        as_held = self.dtype == "float64" and value.host_dtype in FLOATS
        return np.array(array, self.dtype if as_held else numpy_dtype(value.host_dtype), order="C")

    def constant(self, value: TensorValue) -> np.ndarray:
        """A constant, read once; what a program starts with as state is read again at every reset."""
        if value.dtype in BLOCK_TYPES:
            return self._keep(value, lambda: self.read(value))
        return self._keep(value, lambda: self._as_stored(value)).astype(self.held(value.dtype), copy=False)

    def read(self, value: TensorValue) -> np.ndarray:
        """A constant from its file."""
        assert value.constant is not None
        if value.dtype in BLOCK_TYPES:
            return dequantize(value.constant, value.dtype, value.dims).astype(self.dtype, copy=False)
        return self._as_stored(value).astype(self.held(value.dtype), copy=False)

    def _as_stored(self, value: TensorValue) -> np.ndarray:
        assert value.constant is not None
        array = read_array(value.constant.view(), value.stored_dtype, value.dims)
        return array.astype(value.dtype) if value.stored else array  # held as less, or more, than the file has

    def _keep(self, value: TensorValue, read: Callable[[], np.ndarray]) -> np.ndarray:
        if value.id not in self._kept:
            array = read()
            array.flags.writeable = False
            self._kept[value.id] = array
        return self._kept[value.id]

    def initial_state(self) -> dict[int, np.ndarray]:
        """Mutable state as the program has it at the start."""
        return {id: np.array(self.read(self.tensor(id))) for id in self.planner.aliases.state}

    def forget(self, call: OpCall, values: Values) -> None:
        """Drop what no call after this one reads."""
        for id in self.last_use.get(call.index, ()):
            values.pop(id, None)

    @property
    def kept_bytes(self) -> int:
        """Of the constants that are held in memory."""
        return sum(array.nbytes for array in self._kept.values())

    def release(self) -> None:
        """One of the sessions that share these is closed."""
        self.holders -= 1
        if not self.holders:
            self.forget_weights()

    def forget_weights(self) -> None:
        """Drop the constants; they are read again."""
        self._kept.clear()

    def held(self, dtype: str) -> str:
        """What a tensor of this type is held as."""
        return self.dtype if dtype in FLOATS else dtype

    def tensor(self, id: int) -> TensorValue:
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        return value


def _last_uses(graph: Graph) -> dict[int, list[int]]:
    """Call index -> the values that no later call and no output reads."""
    last: dict[int, int] = {}
    for call in graph.calls:
        for id in (*input_ids(graph, call), *output_ids(graph, call)):
            last[id] = call.index
    outputs = set(graph.outputs)
    for id in graph.outputs:
        value = graph.values[id]
        outputs.update(value.items if isinstance(value, ListValue) else ())
    uses: dict[int, list[int]] = {}
    for id, index in last.items():
        if id not in outputs:
            uses.setdefault(index, []).append(id)
    return uses
