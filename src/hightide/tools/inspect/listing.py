"""A graph as a list: every op call with what it reads and gives, live dims as formulas."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hightide.graph.graph import Graph, OpCall, output_ids, value_text
from hightide.graph.values import ListValue, LiteralValue, TensorValue
from hightide.tools.inspect.graph_trace import Formulas
from hightide.tools.inspect.repeats import Repetition, find_repeat


@dataclass(frozen=True)
class ArgumentText:
    """One argument of a call."""

    name: str  # as the op calls it
    text: str  # "%12", "tokens", "0.5", "const [96, 8]"
    ids: tuple[int, ...]  # the values that it is, if it is not a literal


@dataclass(frozen=True)
class CallLine:
    """One op call."""

    op: int
    name: str
    arguments: tuple[ArgumentText, ...]
    gives: tuple[tuple[int, str, str], ...]  # (value id, dtype, live dims or formula of a SymInt)
    mark: str = "%"  # before the number of a value

    @property
    def reads(self) -> str:
        return ", ".join(argument.text for argument in self.arguments)

    @property
    def results(self) -> str:
        return ", ".join(self._result(*given) for given in self.gives)

    def _result(self, id: int, dtype: str, text: str) -> str:
        value = f"{self.mark}{id}"
        return f"{value} {dtype}{text}" if dtype else f"{value} = {text}" if text else value


def list_graph(graph: Graph, formulas: Formulas, names: Sequence[str], state: Collection[int] = ()) -> list[CallLine]:
    """The calls of a graph whose inputs have these names; `state` are the constants that some op writes."""
    inputs = dict(zip(graph.inputs, names, strict=True))
    inputs |= {id: f"state {_type(graph, id)}" for id in state}
    return [
        CallLine(call.index, call.name, arguments_of(graph, call, inputs), _gives(graph, call, formulas))
        for call in graph.calls
    ]


def layers_of(lines: Sequence[CallLine]) -> Repetition | None:
    """The layers of a model: calls that repeat with the same ops and dims."""
    return find_repeat([(line.name, tuple((dtype, text) for _, dtype, text in line.gives)) for line in lines])


def arguments_of(graph: Graph, call: OpCall, inputs: Mapping[int, str]) -> tuple[ArgumentText, ...]:
    return tuple(
        ArgumentText(name, value_text(graph, id, inputs), _value_ids(graph, id)) for name, id in call.args.items()
    )


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


def _type(graph: Graph, id: int) -> str:
    value = graph.values[id]
    assert isinstance(value, TensorValue)
    return f"{value.dtype}[{', '.join(map(str, value.dims))}]"


def _value_ids(graph: Graph, id: int) -> tuple[int, ...]:
    value = graph.values[id]
    if isinstance(value, ListValue):
        return value.items
    return () if isinstance(value, LiteralValue) else (id,)
