"""A graph: values and op calls in topological order, inputs and outputs. Pure data, no GPU."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.graph.values import TensorValue, Value


@dataclass(frozen=True)
class OpCall:
    """One op call. `args` are value ids as serialized: arguments first, the output (or a list of outputs) last."""

    index: int  # place in the graph, for messages
    name: str  # "et_vk.rms_norm.default"
    args: tuple[int, ...]

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
        stored = f"{len(constants)} constants of {sum(constants):,} bytes"
        return f"<Graph: {len(self.calls)} op calls, {takes} -> {gives}, {stored}>"

    def __str__(self) -> str:
        from hightide.tools.inspect.listing import plain_lines  # what shows a graph is not needed to run one

        return "\n".join([repr(self), *("  ".join(line) for line in plain_lines(self))])

    def _repr_html_(self) -> str:
        from hightide.notebook import table
        from hightide.tools.inspect.listing import plain_lines

        return table(repr(self).strip("<>"), ("op", "name", "reads", "gives"), plain_lines(self), right=(0,))


def _tensors(graph: Graph, ids: tuple[int, ...]) -> str:
    found = [graph.values[id] for id in ids]
    return ", ".join(f"{v.dtype}{list(v.dims)}" if isinstance(v, TensorValue) else "SymInt" for v in found) or "nothing"
