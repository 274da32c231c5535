"""The GPU memory of a session's tensors: one buffer each for constants, state and inputs, shared ones for the rest."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from hightide.errors import DeviceError, TooLargeError
from hightide.gpu.device import Device
from hightide.graph.aliases import Aliases
from hightide.graph.graph import Graph
from hightide.graph.values import Dims, TensorValue
from hightide.ops.kernel import Scratch
from hightide.planning.memory import MemoryPlan
from hightide.runtime.room import Needs, NoRoomError, check_host, gpu_needs, ran_out
from hightide.runtime.upload import upload
from hightide.runtime.words import POISON, from_words, to_words

Buffers = dict[int, Any]  # by value id


class SessionMemory:
    """The buffers of one graph, as `plan` has them; tensors are named by their value ids."""

    def __init__(self, device: Device, graph: Graph, aliases: Aliases, plan: MemoryPlan) -> None:
        self.device, self.graph, self.aliases, self.plan = device, graph, aliases, plan
        self._shared: list[Any] = []
        self._own: Buffers = {}
        self._snapshot: Buffers = {}
        self._allocate(gpu_needs(graph, aliases, plan))

    def _allocate(self, needs: Needs) -> None:
        """Make the buffers; what does not fit is refused before the first of them, as far as that is known."""
        name, most = self.device.adapter.name, self.device.max_binding
        sizes = [(f"tensor {id}", size, id in self.aliases.state) for id, size in self.plan.own.items()]
        sizes += [(f"shared {n}", size, False) for n, size in enumerate(self.plan.shared_sizes)]
        for label, size, state in sizes:
            if size > most:
                message = f"{label} needs {size} bytes; {name} binds at most {most}"
                raise NoRoomError(message, needs, largest=most, less_state_helps=state)
        if self.device.traits.software:  # its memory is the machine's
            check_host(f"the program on {name}", needs)
        try:
            self._make_buffers()
        except TooLargeError:
            gc.collect()  # sessions that nobody holds any more
            self.device.flush()
            try:
                self._make_buffers()
            except TooLargeError as error:
                raise ran_out(name, needs, error, largest=most) from error

    def _make_buffers(self) -> None:
        try:
            for n, size in enumerate(self.plan.shared_sizes):
                self._shared.append(self.device.buffer(size, label=f"shared {n}"))
            for id, size in self.plan.own.items():
                self._own[id] = self.device.buffer(size, label=f"tensor {id}")
        except DeviceError:
            self.close()
            raise

    def buffer(self, what: int | Scratch) -> Any:
        """The buffer of a tensor, or of scratch."""
        if isinstance(what, Scratch):
            return self._shared[self.plan.shared[what]]
        root = self.aliases.root[what]
        return self._own[root] if root in self._own else self._shared[self.plan.shared[root]]

    def add_scratch(self, sizes: Mapping[Scratch, int]) -> None:
        """More scratch than was planned, in buffers of its own."""
        shared, shared_sizes = dict(self.plan.shared), list(self.plan.shared_sizes)
        for scratch, size in sizes.items():
            shared[scratch] = len(shared_sizes)
            shared_sizes.append(size)
            self._shared.append(self.device.buffer(size, label="scratch"))
        self.plan = replace(self.plan, shared=shared, shared_sizes=tuple(shared_sizes))

    def input_buffer(self, id: int) -> Any:
        """The buffer that an input is written to; None for an input that no op reads, and for a SymInt."""
        return self._own.get(id)

    def buffers(self) -> list[Any]:
        """All of them."""
        return [*self._shared, *self._own.values()]

    def read(self, id: int, dims: Dims | None = None) -> np.ndarray:
        """A tensor as it is on the GPU now, at its live dims; without `dims`, at its max dims."""
        value = self.tensor(id)
        data = self.device.read(self.buffer(id))
        return from_words(data, value.dtype, value.dims if dims is None else dims).copy()

    def write(self, id: int, array: np.ndarray, at: int = 0) -> None:
        """Overwrite a tensor, from byte `at` of its buffer on."""
        self.device.write(self.buffer(id), at, to_words(array, self.tensor(id).dtype))

    def upload(self, id: int) -> None:
        """Write a constant as the file has it."""
        value = self.tensor(id)
        if value.constant is not None:
            upload(self.device, self._own[id], value)

    def upload_constants(self, progress: Callable[[int, int], None] | None = None) -> None:
        """All constants; `progress` is told of (bytes uploaded, bytes in all)."""
        done, total = 0, sum(self.plan.own.values())
        for id, size in self.plan.own.items():
            self.upload(id)
            done += size
            if progress is not None:
                progress(done, total)

    def poison(self, keep: Collection[int] = ()) -> None:
        """Fill everything that a run must write before it reads with NaN, but not the inputs in `keep`."""
        inputs = [self._own[id] for id in self.graph.inputs if id in self._own and id not in keep]
        self._fill([*self._shared, *inputs], POISON)

    def poison_shared(self, what: Iterable[int | Scratch], word: int) -> None:
        """Fill the shared buffers of these with a word; what has a buffer of its own is left alone."""
        shared = {self.plan.shared[key] for key in what if key in self.plan.shared}
        self._fill([self._shared[n] for n in shared], word)

    def _fill(self, buffers: Iterable[Any], word: int) -> None:
        for buffer in buffers:
            self.device.write(buffer, 0, np.full(buffer.size // 4, word, np.uint32))

    # ---- state

    @property
    def state(self) -> list[int]:
        """The constants that ops write, in a fixed order."""
        return sorted(self.aliases.state)

    def reset(self) -> None:
        """Write the state as the file has it; a file that has changed leaves it as it was."""
        for id in self.state:
            if (constant := self.tensor(id).constant) is not None:
                constant.check()
        for id in self.state:
            self.upload(id)
        self.device.flush()

    def snapshot(self) -> Buffers:
        """A copy of the state on the GPU; one is kept, the last."""
        if not self._snapshot:
            self._snapshot = self._like_state()
        self.device.copy((self._own[id], copy) for id, copy in self._snapshot.items())
        return self._snapshot

    def restore(self, snapshot: Buffers) -> None:
        self.device.copy((copy, self._own[id]) for id, copy in snapshot.items())

    @contextmanager
    def state_kept(self) -> Iterator[None]:
        """The state is afterwards what it was before, whatever runs meanwhile."""
        copies = self._like_state()
        self.device.copy((self._own[id], copy) for id, copy in copies.items())
        try:
            yield
        finally:
            self.restore(copies)
            _destroy(copies.values())

    def _like_state(self) -> Buffers:
        return {id: self.device.buffer(self._own[id].size, label="snapshot") for id in self.state}

    # ---- sizes, the end

    def bytes_by_kind(self) -> dict[str, int]:
        own, inputs = self.plan.own, set(self.graph.inputs)
        state = self.aliases.state
        return {
            "weights": sum(n for id, n in own.items() if id not in state and id not in inputs),
            "state": sum(n for id, n in own.items() if id in state),
            "snapshot": sum(buffer.size for buffer in self._snapshot.values()),
            "inputs": sum(n for id, n in own.items() if id in inputs),
            "activations": sum(self.plan.shared_sizes),
        }

    def close(self) -> None:
        """Free all buffers."""
        _destroy([*self.buffers(), *self._snapshot.values()])
        self._shared, self._own, self._snapshot = [], {}, {}

    def tensor(self, id: int) -> TensorValue:
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        return value


def _destroy(buffers: Iterable[Any]) -> None:
    for buffer in buffers:
        buffer.destroy()
