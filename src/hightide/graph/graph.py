"""A graph: values and op calls in topological order, inputs and outputs. Pure data, no GPU."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.graph.values import Value


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
