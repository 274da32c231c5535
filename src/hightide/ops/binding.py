"""Graphs and the declarations of their ops: arguments get names and are checked; what is a view, what is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hightide.errors import UnsupportedError
from hightide.graph.aliases import Aliases, find_aliases
from hightide.graph.graph import FileCall, Graph, GraphFile, OpCall
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops.arguments import REQUIRED, arguments_of
from hightide.ops.contract import REGISTRY, Op, SymIntOp
from hightide.units import counted


def bind_graph(file: GraphFile) -> Graph:
    """The graph with its arguments named as the ops declare them; a call that does not fit is refused.

    The arguments of an op that hightide does not know have numbers for names: who runs the graph says what is missing.
    """
    calls = tuple(_bound(call, file.values) for call in file.calls)
    return Graph(file.values, calls, file.inputs, file.outputs)


def name_arguments(
    op: type[Op], ids: Sequence[int], values: Sequence[Value], named: Mapping[str, int] = {}
) -> dict[str, int]:
    """Argument ids by name, those in order first; UnsupportedError for a call that does not fit the declaration."""
    declared = {argument.name: argument for argument in arguments_of(op)}
    if len(ids) > len(declared):
        raise UnsupportedError(f"it was given {counted(len(ids), 'argument')}; it takes {len(declared)}")
    given = {**dict(zip(declared, ids, strict=False)), **named}
    for name, id in given.items():
        if name not in declared:
            raise UnsupportedError(f"it has no argument {name}; it has {', '.join(declared)}")
        if not declared[name].takes(values[id], values):
            raise UnsupportedError(f"argument {name} is {_describe(values[id])}; it takes {declared[name]}")
    for argument in declared.values():
        if argument.default is REQUIRED and argument.name not in given:
            raise UnsupportedError(f"argument {argument.name} is missing")
    return given


def graph_aliases(graph: Graph) -> Aliases:
    """Which tensors share memory, by what the ops declare."""
    calls = [(call, REGISTRY[call.name]) for call in graph.calls]
    return find_aliases(
        graph,
        viewed={call.index: call.args[op.aliases] for call, op in calls if op.aliases},
        written={id for call, _ in calls for id in mutated_ids(call)},
    )


def mutated_ids(call: OpCall) -> Iterable[int]:
    """The values whose memory a call writes in place."""
    return (call.args[name] for name in REGISTRY[call.name].mutates)


def _bound(call: FileCall, values: Sequence[Value]) -> OpCall:
    if not call.args:
        raise UnsupportedError(f"op {call.index} ({call.name}): it has no output")
    *ids, out = call.args
    op = REGISTRY.get(call.name)
    if op is None:
        return OpCall(call.index, call.name, {str(n): id for n, id in enumerate(ids)}, out)
    try:
        _check_outputs(op, out, values)
        return OpCall(call.index, call.name, name_arguments(op, ids, values), out)
    except UnsupportedError as error:
        raise UnsupportedError(f"op {call.index} ({call.name}): {error}") from None


def _check_outputs(op: type[Op], out: int, values: Sequence[Value]) -> None:
    """A SymInt where the op computes one, else a tensor or a list of tensors."""
    value = values[out]
    made = [values[id] for id in value.items] if isinstance(value, ListValue) else [value]
    wanted = SymIntValue if issubclass(op, SymIntOp) else TensorValue
    if not made or (wanted is SymIntValue and isinstance(value, ListValue)):
        raise UnsupportedError(f"it writes a list of {len(made)} values")
    for one in made:
        if not isinstance(one, wanted):
            what = "a SymInt" if wanted is SymIntValue else "a tensor"
            raise UnsupportedError(f"its output is {_describe(one)}; it gives {what}")


def _describe(value: Value) -> str:
    match value:
        case TensorValue():
            return f"a {value.dtype} tensor"
        case SymIntValue():
            return "a SymInt"
        case ListValue():
            return "a list of values"
        case LiteralValue(value=literal):
            return repr(literal)
