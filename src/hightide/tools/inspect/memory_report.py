"""The memory that a session of a graph takes, by kind, and what views and reuse save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hightide.graph.values import TensorValue
from hightide.ops.storage import gpu_bytes
from hightide.planning.levels import InputSpec
from hightide.planning.memory import plan_memory
from hightide.planning.planner import Planner
from hightide.runtime.session_plan import plan_session


@dataclass(frozen=True)
class Memory:
    """Bytes at the max dims. `activations` and `scratch` share buffers, and together are what those take."""

    weights: int
    state: int  # KV caches and other constants that ops write
    inputs: int
    activations: int
    scratch: int  # what it adds to the buffers of activations
    buffers: int  # how many are shared by activations and scratch
    views: int  # what tensors that are views of others would take
    reuse: int  # what activations and scratch would take more if each had a buffer of its own

    @property
    def total(self) -> int:
        return self.weights + self.state + self.inputs + self.activations + self.scratch


def memory_of(planner: Planner, specs: Sequence[InputSpec]) -> Memory:
    """What a session with this planner allocates."""
    graph, aliases = planner.graph, planner.aliases
    memory, without_scratch = plan_session(planner, specs).memory, plan_memory(graph, aliases, {})
    own = memory.own
    shared, tensors = sum(memory.shared_sizes), sum(without_scratch.shared_sizes)
    made = {call.out for call in graph.calls if call.index in aliases.views}
    viewed = [graph.values[id] for id in made]
    return Memory(
        weights=sum(n for id, n in own.items() if id not in aliases.state and id not in graph.inputs),
        state=sum(n for id, n in own.items() if id in aliases.state),
        inputs=sum(n for id, n in own.items() if id in graph.inputs),
        activations=min(tensors, shared),
        scratch=max(0, shared - tensors),
        buffers=len(memory.shared_sizes),
        views=sum(gpu_bytes(v.dtype, v.dims) for v in viewed if isinstance(v, TensorValue) and v.constant is None),
        reuse=memory.unshared_bytes - shared,
    )
