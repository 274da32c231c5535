"""Which buffer each tensor lives in: planned once, from lifetimes after aliasing.

Constants, state and inputs have buffers of their own; the other tensors and the scratch of an op
share buffers when their lives do not meet. Buffers are not cut into ranges: WebGPU forbids one buffer
to be read and written in the same dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass

from hightide.errors import UnsupportedError
from hightide.graph.aliases import Aliases
from hightide.graph.graph import Graph, input_ids, output_ids
from hightide.graph.values import TensorValue
from hightide.ops.kernel import Scratch
from hightide.ops.storage import GPU_TYPE, gpu_bytes


@dataclass(frozen=True)
class MemoryPlan:
    own: dict[int, int]  # root of a constant, state or input -> bytes
    shared: dict[int | Scratch, int]  # root of any other tensor, or scratch -> number of a shared buffer
    shared_sizes: tuple[int, ...]
    unshared_bytes: int  # what the shared tensors would take without reuse


def plan_memory(graph: Graph, aliases: Aliases, scratch: dict[Scratch, int]) -> MemoryPlan:
    root = aliases.root
    own: dict[int, int] = {}
    born: dict[int, int] = {}
    last_use: dict[int, int] = {}
    for call in graph.calls:
        for id in (*input_ids(graph, call), *output_ids(graph, call)):
            if id in root:
                born.setdefault(root[id], call.index)
                last_use[root[id]] = call.index
    for id in (*graph.inputs, *graph.outputs):
        if id in root:
            born.setdefault(root[id], -1)
            last_use[root[id]] = len(graph.calls)

    lives: list[tuple[int, int, int, int | Scratch]] = [(s.call, s.call, size, s) for s, size in scratch.items()]
    for id, start in born.items():
        value = graph.values[id]
        assert isinstance(value, TensorValue)
        if value.dtype not in GPU_TYPE:
            raise UnsupportedError(f"tensor {id} is {value.dtype}, which has no GPU form")
        size = gpu_bytes(value.dtype, value.dims)
        if value.constant is not None or id in graph.inputs:
            own[id] = size
        else:
            lives.append((start, last_use[id], size, id))

    # Greedy over time: each tensor takes the smallest free buffer that fits, else the largest, grown.
    sizes: list[int] = []
    busy_until: list[int] = []
    shared: dict[int | Scratch, int] = {}
    for start, end, size, what in sorted(lives, key=lambda life: (life[0], -life[2])):
        free = [n for n, until in enumerate(busy_until) if until < start]
        fitting = [n for n in free if sizes[n] >= size]
        if fitting:
            n = min(fitting, key=lambda n: sizes[n])
        elif free:
            n = max(free, key=lambda n: sizes[n])
            sizes[n] = size
        else:
            n = len(sizes)
            sizes.append(size)
            busy_until.append(-1)
        busy_until[n] = end
        shared[what] = n
    return MemoryPlan(own, shared, tuple(sizes), unshared_bytes=sum(size for _, _, size, _ in lives))
