"""Whether a session fits: what it needs, known from its plan, against what its device has.

WebGPU does not say how much memory an adapter has. So what is checked beforehand is how much it binds at once and,
where the memory is the machine's own, what is free there; everything else shows when buffers are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hightide.errors import TooLargeError
from hightide.graph.aliases import Aliases
from hightide.graph.graph import Graph, input_ids, output_ids
from hightide.graph.values import TensorValue
from hightide.host_memory import free_memory
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.planning.memory import MemoryPlan
from hightide.planning.planner import Plan
from hightide.units import binary

SMALL = 256 << 20  # bytes: what is less is not worth a look at the machine's memory


@dataclass(frozen=True)
class Needs:
    """Bytes that a session takes."""

    weights: int
    state: int  # KV caches and other buffers that calls change
    other: int  # inputs, activations, scratch
    largest_state: int = 0  # one buffer of it

    @property
    def total(self) -> int:
        return self.weights + self.state + self.other

    def __str__(self) -> str:
        parts = f"weights {binary(self.weights)}, state {binary(self.state)}, activations {binary(self.other)}"
        return f"{binary(self.total)} ({parts})"


class NoRoomError(TooLargeError):
    """With what it would take, so that whoever knows the model can say what would fit."""

    def __init__(
        self, message: str, needs: Needs, room: int = 0, largest: int = 0, less_state_helps: bool = True
    ) -> None:
        super().__init__(message)
        self.needs = needs
        self.room, self.largest = room, largest  # bytes in all, and of one buffer; 0: not known
        self.less_state_helps = less_state_helps


def ran_out(name: str, needs: Needs, error: TooLargeError, largest: int = 0) -> NoRoomError:
    """For a device that had no memory left while buffers were made."""
    return NoRoomError(f"the program needs {needs}; {name} has less: {error}", needs, largest=largest)


def gpu_needs(graph: Graph, aliases: Aliases, plan: MemoryPlan) -> Needs:
    """What a session on a GPU takes, from the plan of its memory."""
    state = [size for id, size in plan.own.items() if id in aliases.state]
    weights = sum(size for id, size in plan.own.items() if id not in aliases.state and id not in graph.inputs)
    other = sum(plan.own.values()) - weights - sum(state) + sum(plan.shared_sizes)
    return Needs(weights, sum(state), other, max(state, default=0))


def host_needs(graph: Graph, aliases: Aliases) -> Needs:
    """What a session on the references takes: weights in blocks are held unpacked."""
    constants = [v for v in graph.values if isinstance(v, TensorValue) and v.constant is not None]
    state = [_host_bytes(v) for v in constants if v.id in aliases.state]
    weights = sum(_host_bytes(v) for v in constants if v.id not in aliases.state)
    return Needs(weights, sum(state), 0, max(state, default=0))


def largest_call(graph: Graph, plan: Plan) -> int:
    """Bytes that the call with the largest tensors reads and writes at a level, constants aside."""
    return max(
        (_call_bytes(graph, plan, (*input_ids(graph, c), *output_ids(graph, c))) for c in graph.calls), default=0
    )


def check_host(what: str, needs: Needs) -> None:
    """NoRoomError if the machine has less memory free."""
    if needs.total < SMALL:
        return
    room = free_memory()
    if room and needs.total > room:
        raise NoRoomError(f"{what} needs {needs} of memory; {binary(room)} are free", needs, room)


def _host_bytes(value: TensorValue) -> int:
    if value.dtype in BLOCK_TYPES:
        return math.prod(value.dims) * 4
    assert value.constant is not None
    return value.constant.length


def _call_bytes(graph: Graph, plan: Plan, ids: Iterable[int]) -> int:
    return sum(math.prod(plan.dims[id]) * 4 for id in set(ids) if id in plan.dims and _is_computed(graph, id))


def _is_computed(graph: Graph, id: int) -> bool:
    value = graph.values[id]
    return isinstance(value, TensorValue) and value.constant is None
