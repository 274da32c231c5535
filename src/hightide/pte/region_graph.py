"""The graph of a region of a method: delegates spliced in, kernel calls as calls of the same graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hightide.errors import UnsupportedError
from hightide.formats.program_file import MethodFile, TensorSpec, ValueListSpec
from hightide.graph.blob import AnyBlob, Computed, Zeros
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import ITEM_SIZE, Dims, ListValue, Literal, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops import REGISTRY
from hightide.ops.arrays import numpy_dtype
from hightide.ops.binding import name_arguments
from hightide.pte.interpreter import differ_by_ones, tensor_array
from hightide.pte.kernel_calls import BoundKernel
from hightide.pte.written_states import STORE


@dataclass(frozen=True)
class Number:
    """How a graph makes an integer of the method: an op on SymInts, and the values of the method that it takes."""

    op: str
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Sources:
    """Where the values of a method come from."""

    method: MethodFile
    defined: frozenset[int]  # inputs, and what instructions define
    numbers: Mapping[int, Number]  # integers that one instruction makes of dims, of elements of inputs and of others
    owned: frozenset[int]  # buffers that are the state of a graph


# Ops that change an argument in place -> those that give it changed, for values that are not state.
ON_COPIES = {"llama.update_cache.default": "hightide.updated_cache.default"}


class RegionGraph:
    """Takes instructions in order; what they read from outside becomes inputs, constants and state of the graph."""

    def __init__(self, sources: Sources) -> None:
        self.method = sources.method
        self.inputs: dict[int, int] = {}  # value of the method -> of the graph, in the order that they were met
        self._sources = sources
        self._values: list[Value] = []
        self._calls: list[OpCall] = []
        self._bound: dict[int, int] = {}  # what a value of the method is in the graph, so far
        self._states: dict[int, int] = {}  # owned buffer -> its constant
        self._delegates: dict[int, dict[int, int]] = {}  # delegate -> those of its constants that are in the graph

    # ---- instructions

    def kernel(self, bound: BoundKernel) -> None:
        signature = bound.signature
        if not self._sources.owned.issuperset(signature.changes):
            self._change_copy(bound)
            return
        for id in signature.changes:
            self._store(id)  # the op writes to the memory of the state
        if signature.writes[0] in self._sources.numbers:
            self._make(signature.writes[0])
            return
        given = name_arguments(bound.op, [self.read(id) for id in signature.reads], self._values)
        listed = isinstance(self.method.values[bound.call.args[-1]], ValueListSpec)
        outs = tuple(self._output(id) for id in signature.writes)
        self._call(bound.name, given, self._add(ListValue(len(self._values), outs)) if listed else outs[0])
        self._bound.update(zip(signature.writes, outs, strict=True))

    def _change_copy(self, bound: BoundKernel) -> None:
        """A tensor that is no state is another value from here on; what the op returns says nothing."""
        changed, name = bound.signature.changes[0], ON_COPIES[bound.name]
        given = name_arguments(REGISTRY[name], [self.read(id) for id in bound.signature.reads], self._values)
        made = self._output(changed)
        self._call(name, given, made)
        self._bound[changed] = made

    def delegate(self, number: int, graph: Graph, args: Sequence[int]) -> None:
        """The calls of a delegate's graph, its inputs and outputs being values of the method."""
        ids = {inner: self.read(outer) for inner, outer in zip(graph.inputs, args, strict=False)}
        ids |= self._delegates.get(number, {})
        new = [value for value in graph.values if value.id not in ids]
        ids |= {value.id: len(self._values) + n for n, value in enumerate(new)}
        for value in new:
            if isinstance(value, ListValue):
                value = replace(value, items=tuple(ids[item] for item in value.items))
            self._values.append(replace(value, id=ids[value.id]))
        constants = (v.id for v in graph.values if isinstance(v, TensorValue) and v.constant is not None)
        self._delegates[number] = {id: ids[id] for id in constants}
        for call in graph.calls:
            self._call(call.name, {name: ids[id] for name, id in call.args.items()}, ids[call.out])
        for inner, outer in zip(graph.outputs, args[len(graph.inputs) :], strict=True):
            self._bound[outer] = self._with_dims_of(ids[inner], outer)

    def move(self, source: int, target: int) -> None:
        self._bound[target] = self.read(source)

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        """The graph, with these values of the method as its inputs and outputs."""
        for id in self._states:
            self._store(id)
        given = tuple(self.inputs[id] if id in self.inputs else self._outer(id) for id in inputs)
        gives: list[int] = []
        for id in outputs:
            made, spec = self._bound[id], self.method.values[id]
            value = self._values[made]
            if isinstance(value, TensorValue) and isinstance(spec, TensorSpec):
                if made in (*given, *gives) or value.constant is not None:
                    made = self._same(made)
                    value = self._values[made]
                    assert isinstance(value, TensorValue)
                self._values[made] = replace(value, host_dtype=numpy_dtype(spec.dtype))
            gives.append(made)
        return Graph(tuple(self._values), tuple(self._calls), given, tuple(gives))

    # ---- values

    def read(self, id: int) -> int:
        """What a value of the method is in the graph."""
        if id not in self._bound:
            self._bound[id] = self._outer(id)
        return self._bound[id]

    def _outer(self, id: int) -> int:
        """A value that nothing in the region defines."""
        spec = self.method.values[id]
        match spec:
            case TensorSpec() if id in self._sources.owned:
                self._states[id] = self._tensor(spec, _initial(spec))
                return self._states[id]
            case TensorSpec(constant=blob) if blob is not None:
                return self._tensor(spec, _contiguous(spec, blob))
            case TensorSpec():
                self.inputs[id] = self._tensor(spec)
                return self.inputs[id]
            case ValueListSpec(items=items):
                return self._list([self._literal(None) if item == -1 else self.read(item) for item in items])
        if id in self._sources.numbers and self._can_make(id):
            self._make(id)
            return self._bound[id]
        if id not in self._sources.defined:
            return self._literal(spec)
        if isinstance(spec, bool) or not isinstance(spec, int):
            raise UnsupportedError(f"value {id} is a number that the host computes, and no integer")
        self.inputs[id] = self._add(SymIntValue(len(self._values), spec))
        return self.inputs[id]

    def _can_make(self, id: int) -> bool:
        """Whether an integer can be made in this graph, of what is in it or may be its input anyway."""
        if id in self._bound or id not in self._sources.defined:
            return True
        spec = self.method.values[id]
        if isinstance(spec, TensorSpec):
            return id in self.method.inputs
        number = self._sources.numbers.get(id)
        return number is not None and all(self._can_make(read) for read in number.reads)

    def _make(self, id: int) -> None:
        number = self._sources.numbers[id]
        given = name_arguments(REGISTRY[number.op], [self.read(read) for read in number.reads], self._values)
        self._bound[id] = self._output(id)
        self._call(number.op, given, self._bound[id])

    def _output(self, id: int) -> int:
        """A new value for what an instruction defines."""
        spec = self.method.values[id]
        if isinstance(spec, TensorSpec):
            return self._tensor(spec)
        if isinstance(spec, bool) or not isinstance(spec, int):
            raise UnsupportedError(f"value {id} is neither a tensor nor an integer")
        return self._add(SymIntValue(len(self._values), spec))

    def _list(self, ids: list[int]) -> int:
        values = [self._values[id] for id in ids]
        literals = [value.value for value in values if isinstance(value, LiteralValue)]
        if len(literals) == len(ids) and all(isinstance(literal, int) for literal in literals):
            return self._literal(tuple(literals))  # type: ignore[arg-type]
        return self._add(ListValue(len(self._values), tuple(ids)))

    def _store(self, id: int) -> None:
        """Write what a buffer has become to its state, if that is not where it is."""
        now = self.read(id)
        if id in self._states and now != self._states[id]:
            nothing = self._add(TensorValue(len(self._values), (1,), "float32", "float32"))
            self._call(STORE, {"x": now, "state": self._states[id]}, nothing)
            self._bound[id] = self._states[id]

    def _with_dims_of(self, made: int, id: int) -> int:
        """An output of a delegate with the dims that the method declares, where they differ only by dims of 1."""
        value, spec = self._values[made], self.method.values[id]
        if not isinstance(value, TensorValue) or not isinstance(spec, TensorSpec):
            return made
        if not differ_by_ones(value.dims, spec.dims):
            return made
        ones = tuple(n for n, size in enumerate(value.dims) if size == 1)
        made = self._view("aten.squeeze_copy.dims", made, "dims", ones, tuple(d for d in value.dims if d != 1))
        for n, size in enumerate(spec.dims):
            if size == 1:
                now = self._values[made]
                assert isinstance(now, TensorValue)
                dims = (*now.dims[:n], 1, *now.dims[n:])
                made = self._view("aten.unsqueeze_copy.default", made, "dim", n, dims)
        return made

    def _same(self, made: int) -> int:
        value = self._values[made]
        assert isinstance(value, TensorValue)
        return self._view("aten.clone.default", made, "", None, value.dims)

    def _view(self, op: str, made: int, argument: str, literal: int | tuple[int, ...] | None, dims: Dims) -> int:
        value = self._values[made]
        assert isinstance(value, TensorValue)
        given = {"x": made}
        if argument:
            given[argument] = self._literal(literal)
        view = self._add(TensorValue(len(self._values), dims, value.dtype, value.host_dtype))
        self._call(op, given, view)
        return view

    def _tensor(self, spec: TensorSpec, constant: AnyBlob | None = None) -> int:
        return self._add(TensorValue(len(self._values), spec.dims, spec.dtype, numpy_dtype(spec.dtype), constant))

    def _literal(self, literal: Literal) -> int:
        return self._add(LiteralValue(len(self._values), literal))

    def _add(self, value: Value) -> int:
        self._values.append(value)
        return value.id

    def _call(self, op: str, given: Mapping[str, int], out: int) -> None:
        self._calls.append(OpCall(len(self._calls), op, given, out))


def _initial(spec: TensorSpec) -> AnyBlob:
    """What a buffer starts as."""
    if spec.initial is not None:
        return _contiguous(spec, spec.initial)
    size = ITEM_SIZE[spec.dtype]
    for dim in spec.dims:
        size *= dim
    return Zeros(size)


def _contiguous(spec: TensorSpec, blob: AnyBlob) -> AnyBlob:
    """A tensor's bytes with its last dim innermost."""
    if spec.dim_order == tuple(range(len(spec.dims))):
        return blob
    return Computed(blob.length, (blob,), partial(_reordered, spec, blob))


def _reordered(spec: TensorSpec, blob: AnyBlob) -> bytes:
    return tensor_array(spec, blob.view()).tobytes()
