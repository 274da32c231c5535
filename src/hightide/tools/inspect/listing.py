"""A graph as a list: every op call with what it reads and gives, live dims as formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature

from hightide.graph.aliases import output_ids
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.contract import Op
from hightide.tools.inspect.graph_trace import Formulas
from hightide.tools.inspect.repeats import Repeat, find_repeat


@dataclass(frozen=True)
class Argument:
    """One argument of a call."""

    name: str  # as the op calls it
    text: str  # "%12", "tokens", "0.5", "const [96, 8]"
    ids: tuple[int, ...]  # the values that it is, if it is not a literal


@dataclass(frozen=True)
class Line:
    """One op call."""

    op: int
    name: str
    arguments: tuple[Argument, ...]
    gives: tuple[tuple[int, str, str], ...]  # (value id, dtype, live dims or formula of a SymInt)

    @property
    def reads(self) -> str:
        return ", ".join(argument.text for argument in self.arguments)

    @property
    def results(self) -> str:
        return " ".join(f"%{id} {dtype}{text}" if dtype else f"%{id} = {text}" for id, dtype, text in self.gives)


def list_graph(graph: Graph, formulas: Formulas, names: Sequence[str]) -> list[Line]:
    """The calls of a graph whose inputs have these names."""
    inputs = dict(zip(graph.inputs, names, strict=True))
    return [
        Line(call.index, call.name, arguments_of(graph, call, inputs), _gives(graph, call, formulas))
        for call in graph.calls
    ]


def plain_lines(graph: Graph) -> list[tuple[str, str, str, str]]:
    """(op, name, what it reads, what it gives) of every call, at the max dims: for a graph by itself."""
    inputs = {id: f"in{n}" for n, id in enumerate(graph.inputs)}
    lines = []
    for call in graph.calls:
        reads = ", ".join(argument.text for argument in arguments_of(graph, call, inputs))
        gives = [graph.values[id] for id in output_ids(graph, call)]
        texts = [f"%{v.id} {v.dtype}{list(v.dims)}" if isinstance(v, TensorValue) else f"%{v.id}" for v in gives]
        lines.append((str(call.index), call.name, reads, " ".join(texts)))
    return lines


def layers_of(lines: Sequence[Line]) -> Repeat | None:
    """The layers of a model: calls that repeat with the same ops and dims."""
    return find_repeat([(line.name, tuple((dtype, text) for _, dtype, text in line.gives)) for line in lines])


def arguments_of(graph: Graph, call: OpCall, inputs: Mapping[int, str]) -> tuple[Argument, ...]:
    names = argument_names(call.name)
    return tuple(
        Argument(names[n] if n < len(names) else f"argument {n}", value_text(graph, id, inputs), _value_ids(graph, id))
        for n, id in enumerate(call.args[:-1])
    )


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


@cache
def argument_names(name: str) -> tuple[str, ...]:
    """What an op calls its arguments; those that it takes as `*args` have no names."""
    op = REGISTRY.get(name)
    if op is None:
        return ()
    own = type(op)
    described: Callable[..., object] = own.plan if own.plan is not Op.plan else own.reference
    parameters = [p for p in signature(described).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return tuple(p.name for p in parameters if p.name not in ("self", "ctx"))


def _gives(graph: Graph, call: OpCall, formulas: Formulas) -> tuple[tuple[int, str, str], ...]:
    made = []
    for id in output_ids(graph, call):
        value = graph.values[id]
        if isinstance(value, TensorValue):
            dims = formulas.dims.get(id, ())
            made.append((id, value.dtype, "[" + ", ".join(map(str, dims)) + "]"))
        else:
            made.append((id, "", str(formulas.symints.get(id, "?"))))
    return tuple(made)


def _value_ids(graph: Graph, id: int) -> tuple[int, ...]:
    value = graph.values[id]
    if isinstance(value, ListValue):
        return value.items
    return () if isinstance(value, LiteralValue) else (id,)
