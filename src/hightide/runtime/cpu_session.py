"""A graph on the NumPy references: the executor of a machine without an adapter, and the oracle of tests.

It plans as the GPU session does, without dispatches, so both refuse the same calls with the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hightide.errors import HightideError
from hightide.graph.graph import Graph, OpCall, input_ids, output_ids
from hightide.graph.symbols import Env
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue
from hightide.ops.arguments import converted
from hightide.ops.binding import mutated_ids
from hightide.ops.blocks.layout import BLOCK_TYPES, dequantize
from hightide.ops.contract import Op, SymIntOp
from hightide.planning.levels import (
    InputElements,
    InputSpec,
    Levels,
    MaxElements,
    check_count,
    check_int32,
    check_run,
    graph_inputs,
    live_symint,
)
from hightide.planning.planner import Plan, Planner
from hightide.runtime.session import Fed

FLOATS = ("float16", "bfloat16", "float32", "float64")
Values = dict[int, Any]  # value id -> array or int, of one run


class CpuSession:
    """Runs one graph on `op.reference`, with float tensors held as `dtype` (float64: the oracle).

    With float64 the float outputs are float64 too.
    """

    name = "NumPy"

    def __init__(
        self,
        graph: Graph,
        dynamic: Sequence[bool] | None = None,
        names: Sequence[str] | None = None,
        max_levels: int = 64,
        dtype: Literal["float32", "float64"] = "float32",
    ) -> None:
        self.graph = graph
        self.dtype = dtype
        self.specs: list[InputSpec] = graph_inputs(graph, dynamic, names)
        self.planner = Planner(graph, dispatch=False)
        self.planner.plan_max(MaxElements())  # refuses what no level could run
        self.levels: Levels[Plan] = Levels(self.planner, max_levels)
        root = self.planner.aliases.root
        self._written = {root[id] for call in graph.calls for id in mutated_ids(call)}
        self._last_use = _last_uses(graph)
        self._unpacked: dict[int, np.ndarray] = {}
        self._fed: dict[int, np.ndarray] = {}
        self.state: dict[int, np.ndarray] = {}
        self.reset()

    def launch(
        self, given: Sequence[Any], want: Sequence[int] | None = None, feed: Mapping[int, int] = {}
    ) -> list[np.ndarray]:
        """Runs at once; see `Session.launch`."""
        given = [self._fed[n] if isinstance(value, Fed) else value for n, value in enumerate(given)]
        outputs = self.run(given)
        for output, target in feed.items():
            last = outputs[output].reshape(-1)[-1:]
            self._fed[target] = last.astype(self.specs[target].dtype).reshape((1,) * len(self.specs[target].dims))
        return outputs if want is None else [outputs[n] for n in want]

    def collect(self, ticket: list[np.ndarray]) -> list[np.ndarray]:
        return ticket

    def read_state(self) -> list[np.ndarray]:
        """Mutable state as arrays, in a fixed order."""
        return [self.state[id].copy() for id in sorted(self.state)]

    def write_state(self, arrays: Sequence[np.ndarray]) -> None:
        self.state = {id: np.array(array) for id, array in zip(sorted(self.state), arrays, strict=True)}

    def device_bytes(self) -> dict[str, int]:
        """Memory by kind: on the host, only what this session made itself."""
        return {
            "weights": sum(array.nbytes for array in self._unpacked.values()),
            "state": sum(array.nbytes for array in self.state.values()),
        }

    def run(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Outputs at the live dims of `given`; state changes only if every op succeeds."""
        inputs, plan, env = self.level(given)
        check_run(plan, inputs, self.specs, env)
        for spec, array in zip(self.specs, inputs, strict=True):
            if array.dtype == np.int64 and array.size:
                check_int32(spec.name, int(array.min()), int(array.max()))
        for expr in plan.symints.values():
            live_symint(expr, env)

        state = {id: array.copy() for id, array in self.state.items()}  # ops write in place
        values: Values = dict(state)
        for id, array in zip(self.graph.inputs, inputs, strict=True):
            values[id] = self._input(id, array)
        with np.errstate(all="ignore"):  # infinities and NaNs go on silently, as on the GPU
            for call, op in zip(self.graph.calls, self.planner.ops, strict=True):
                self._run_call(call, op, plan, values)
                for id in self._last_use.get(call.index, ()):
                    values.pop(id, None)
        outputs = [self._output(id, values) for id in self.graph.outputs]
        self.state = state
        return outputs

    def level(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Plan, Env]:
        """The inputs as arrays, the plan of their level, and the input elements that SymInts read."""
        check_count(self.specs, given)
        inputs = [spec.array(value) for spec, value in zip(self.specs, given, strict=True)]
        env = InputElements(inputs, self.specs)
        return inputs, self.levels.find(tuple(array.shape for array in inputs), env, lambda plan: plan), env

    def reset(self) -> None:
        """Put mutable state (KV caches) back to what the program says it is at the start."""
        self.state = {id: np.array(self._constant(self._tensor(id))) for id in self.planner.aliases.state}

    def snapshot(self) -> Any:
        """The state, for `restore`; a run replaces it whole, so nothing is copied."""
        return self.state

    def restore(self, snapshot: Any) -> None:
        self.state = snapshot

    def close(self) -> None:
        """Let go of state and unpacked weights."""
        self.state, self._unpacked = {}, {}

    def _run_call(self, call: OpCall, op: type[Op], plan: Plan, values: Values) -> None:
        ids = output_ids(self.graph, call)
        if call.index in self.planner.aliases.views:
            source = self.planner.aliases.views[call.index]
            values[ids[0]] = self._argument(source, values).reshape(plan.dims[ids[0]])
            return
        given = {name: self._argument(id, values) for name, id in call.args.items()}
        try:
            result = op.evaluate(converted(op, given))
        except HightideError as error:
            raise type(error)(f"{call}: {error}") from None
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
            values[id] = array.astype(self._held(self._tensor(id).dtype), copy=keep)

    def _argument(self, id: int, values: Mapping[int, Any]) -> Any:
        match self.graph.values[id]:
            case TensorValue() as value:
                return values[id] if id in values else self._constant(value)
            case SymIntValue():
                return values[id]
            case LiteralValue(value=literal):
                return literal
            case ListValue(items=items):
                return tuple(self._argument(item, values) for item in items)

    def _input(self, id: int, array: np.ndarray) -> Any:
        value = self.graph.values[id]
        if isinstance(value, SymIntValue):
            return int(array)
        # The caller's memory must not be written to.
        return array.astype(self._held(self._tensor(id).dtype), copy=id in self._written)

    def _output(self, id: int, values: Values) -> np.ndarray:
        array = np.asarray(self._argument(id, values))
        value = self.graph.values[id]
        if not isinstance(value, TensorValue):
            return array
        as_held = self.dtype == "float64" and value.host_dtype in FLOATS
        return np.array(array, self.dtype if as_held else numpy_dtype(value.host_dtype), order="C")

    def _constant(self, value: TensorValue) -> np.ndarray:
        assert value.constant is not None
        if value.dtype in BLOCK_TYPES:
            if value.id not in self._unpacked:  # unpacking takes longer than the product: keep it
                self._unpacked[value.id] = dequantize(value.constant, value.dtype, value.dims).astype(self.dtype)
            return self._unpacked[value.id]
        array = read_array(value.constant.view(), value.stored_dtype, value.dims)
        if value.stored:  # held as less, or more, than the file has
            array = array.astype(value.dtype)
        return array.astype(self._held(value.dtype), copy=False)

    def _held(self, dtype: str) -> str:
        return self.dtype if dtype in FLOATS else dtype

    def _tensor(self, id: int) -> TensorValue:
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        return value


def numpy_dtype(dtype: str) -> str:
    """NumPy has no bfloat16: such tensors are held as float32."""
    return "float32" if dtype == "bfloat16" else dtype


def read_array(data: memoryview, dtype: str, dims: Sequence[int]) -> np.ndarray:
    """A tensor's bytes as an array, without a copy where NumPy knows the type."""
    if dtype == "bfloat16":  # the upper half of a float32
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(dims)
    return np.frombuffer(data, dtype).reshape(dims)


def _last_uses(graph: Graph) -> dict[int, list[int]]:
    """Call index -> the values that no later call and no output reads."""
    last: dict[int, int] = {}
    for call in graph.calls:
        for id in (*input_ids(graph, call), *output_ids(graph, call)):
            last[id] = call.index
    kept = set(graph.outputs)
    for id in graph.outputs:
        value = graph.values[id]
        kept.update(value.items if isinstance(value, ListValue) else ())
    uses: dict[int, list[int]] = {}
    for id, index in last.items():
        if id not in kept:
            uses.setdefault(index, []).append(id)
    return uses
