"""A graph: values and op calls in topological order, inputs and outputs. Pure data, no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.notebook import table
from hightide.units import counted


@dataclass(frozen=True)
class FileCall:
    """An op call as a file has it: value ids, the arguments in order and then the output (or a list of outputs)."""

    index: int
    name: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class GraphFile:
    """A graph as a file has it; `ops.binding.bind_graph` gives its arguments their names."""

    values: tuple[Value, ...]
    calls: tuple[FileCall, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class OpCall:
    """One op call: the ids of its arguments by name, and of its output (or a list of outputs)."""

    index: int  # place in the graph, for messages
    name: str  # "et_vk.rms_norm.default"
    args: Mapping[str, int]
    out: int

    def __str__(self) -> str:
        return f"op {self.index} ({self.name})"


@dataclass(frozen=True)
class Graph:
    values: tuple[Value, ...]  # values[i].id == i
    calls: tuple[OpCall, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def __repr__(self) -> str:
        constants = [v.constant.length for v in self.values if isinstance(v, TensorValue) and v.constant is not None]
        takes, gives = _tensors(self, self.inputs), _tensors(self, self.outputs)
        stored = f"{counted(len(constants), 'constant')} of {sum(constants):,} bytes"
        return f"<Graph: {counted(len(self.calls), 'op call')}, {takes} -> {gives}, {stored}>"

    def __str__(self) -> str:
        return "\n".join([repr(self), *("  ".join(line) for line in self._lines())])

    def _repr_html_(self) -> str:
        return table(repr(self).strip("<>"), ("op", "name", "reads", "gives"), self._lines(), right=(0,))

    def _lines(self) -> Iterator[tuple[str, str, str, str]]:
        """(op, name, what it reads, what it gives) of every call, at the max dims."""
        inputs = {id: f"in{n}" for n, id in enumerate(self.inputs)}
        for call in self.calls:
            reads = ", ".join(value_text(self, id, inputs) for id in call.args.values())
            gives = [self.values[id] for id in output_ids(self, call)]
            texts = [f"%{v.id} {v.dtype}{list(v.dims)}" if isinstance(v, TensorValue) else f"%{v.id}" for v in gives]
            yield str(call.index), call.name, reads, " ".join(texts)


def output_ids(graph: Graph, call: OpCall) -> tuple[int, ...]:
    """Value ids that a call defines: its output, or the items of it."""
    out = graph.values[call.out]
    return out.items if isinstance(out, ListValue) else (out.id,)


def input_ids(graph: Graph, call: OpCall) -> list[int]:
    """Value ids that a call reads, lists opened."""
    ids: list[int] = []
    for id in call.args.values():
        value = graph.values[id]
        ids.extend(value.items if isinstance(value, ListValue) else (id,))
    return ids


def value_text(graph: Graph, id: int, inputs: Mapping[int, str]) -> str:
    """A value as an argument: an input by its name, a computed one by its number, a constant by its dims."""
    if id in inputs:
        return inputs[id]
    match graph.values[id]:
        case TensorValue(constant=None) | SymIntValue():
            return f"%{id}"
        case TensorValue() as value:
            return f"const {value.dtype}[{', '.join(map(str, value.dims))}]"
        case LiteralValue(value=literal):
            return f"{literal:g}" if isinstance(literal, float) else str(literal) if literal != "" else '""'
        case ListValue(items=items):
            return "[" + ", ".join(value_text(graph, item, inputs) for item in items) + "]"


def _tensors(graph: Graph, ids: tuple[int, ...]) -> str:
    found = [graph.values[id] for id in ids]
    return ", ".join(f"{v.dtype}{list(v.dims)}" if isinstance(v, TensorValue) else "SymInt" for v in found) or "nothing"
