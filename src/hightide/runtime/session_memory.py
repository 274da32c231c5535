"""The GPU memory of a session's tensors.

Constants, state and large inputs have a buffer each, small inputs have one together, the rest share buffers.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hightide.errors import DeviceError, InputError, TooLargeError, UnsupportedError
from hightide.gpu.device import Device, Region, whole
from hightide.graph.aliases import Aliases
from hightide.graph.graph import Graph
from hightide.graph.values import Dims, TensorValue
from hightide.ops.kernel import Scratch
from hightide.ops.storage import gpu_bytes
from hightide.planning.memory import MemoryPlan
from hightide.runtime.room import Needs, NoRoomError, check_host, gpu_needs, ran_out
from hightide.runtime.session import RowCopies, check_rows_in, state_rows
from hightide.runtime.step_block import StepBlock, small_inputs
from hightide.runtime.upload import upload
from hightide.runtime.words import POISON, from_words, to_words

Buffers = dict[int, Any]  # by value id


@dataclass
class ConstantBuffers:
    """The constants of a graph on one device, and how many sessions hold them."""

    device: Device
    buffers: Buffers = field(default_factory=dict)
    uploaded: bool = False
    holders: int = 0


class Constants:
    """Where sessions of one graph find its constants: made once, and again on a device that was opened again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: ConstantBuffers | None = None

    def uploaded(self, device: Device) -> bool:
        held = self._held
        return held is not None and held.device is device and held.holders > 0 and held.uploaded

    def hold(self, device: Device) -> ConstantBuffers:
        with self._lock:
            if self._held is None or self._held.device is not device or not self._held.holders:
                self._held = ConstantBuffers(device)
            self._held.holders += 1
            return self._held

    def release(self, held: ConstantBuffers) -> None:
        """The last one to let go frees them."""
        with self._lock:
            held.holders -= 1
            if not held.holders:
                _destroy(held.buffers.values())
                held.buffers = {}


class SessionMemory:
    """The buffers of one graph, as `plan` has them; tensors are named by their value ids."""

    def __init__(
        self, device: Device, graph: Graph, aliases: Aliases, plan: MemoryPlan, constants: Constants | None = None
    ) -> None:
        """`constants` are shared with other sessions."""
        self.device, self.graph, self.aliases, self.plan = device, graph, aliases, plan
        self._shared: list[Any] = []
        self._own: Buffers = {}
        self._snapshot: Buffers = {}
        self._staging: Any = None  # for copies within a buffer
        self._constants = constants or Constants()
        self._held: ConstantBuffers | None = None
        self._step: StepBlock | None = None
        self._has_weights = not self._constants.uploaded(device)  # else they are another session's
        self._allocate(gpu_needs(graph, aliases, plan))

    def _allocate(self, needs: Needs) -> None:
        """Make the buffers; what does not fit is refused before the first of them, as far as that is known."""
        name, most = self.device.adapter.name, self.device.max_binding
        if not self._has_weights:
            needs = replace(needs, weights=0)
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
        small = small_inputs(self.graph, self.aliases, self.plan.own)
        try:
            self._step = StepBlock(self.device, small)
            for n, size in enumerate(self.plan.shared_sizes):
                self._shared.append(self.device.buffer(size, label=f"shared {n}"))
            self._held = self._constants.hold(self.device)
            for id, size in self.plan.own.items():
                if id in small:
                    continue
                held = self._held.buffers if self._is_weight(id) else self._own
                if id not in held:
                    held[id] = self.device.buffer(size, label=f"tensor {id}")
                self._own[id] = held[id]
        except DeviceError:
            self.close()
            raise

    def _is_weight(self, id: int) -> bool:
        return id not in self.aliases.state and id not in self.graph.inputs

    @property
    def step(self) -> StepBlock:
        """What runs are given: small inputs, and the SymInts."""
        assert self._step is not None
        return self._step

    def region(self, what: int | Scratch) -> Region:
        """Where a tensor lies, or scratch."""
        if isinstance(what, Scratch):
            return whole(self._shared[self.plan.shared[what]])
        root = self.aliases.root[what]
        if root in self.step.regions:
            return self.step.regions[root]
        return whole(self._own[root] if root in self._own else self._shared[self.plan.shared[root]])

    def add_scratch(self, sizes: Mapping[Scratch, int]) -> None:
        """More scratch than was planned, in buffers that the calls share."""
        shared, shared_sizes = dict(self.plan.shared), list(self.plan.shared_sizes)
        for index in sorted({scratch.index for scratch in sizes}):
            of_calls = {scratch: size for scratch, size in sizes.items() if scratch.index == index}
            shared.update(dict.fromkeys(of_calls, len(shared_sizes)))
            shared_sizes.append(max(of_calls.values()))
            self._shared.append(self.device.buffer(shared_sizes[-1], label="scratch"))
        self.plan = replace(self.plan, shared=shared, shared_sizes=tuple(shared_sizes))

    def input_buffer(self, id: int) -> Any:
        """The buffer of an input that has its own; None for a small one, one that no op reads, and a SymInt."""
        return self._own.get(id)

    def buffers(self) -> list[Any]:
        """All of them."""
        return [*self._shared, *self._own.values(), *([self._step.buffer] if self._step else [])]

    def read(self, id: int, dims: Dims | None = None) -> np.ndarray:
        """A tensor as it is on the GPU now, at its live dims; without `dims`, at its max dims."""
        value = self.tensor(id)
        data = self.device.read_parts([self.region(id)])[0]
        return from_words(data, value.dtype, value.dims if dims is None else dims).copy()

    def write(self, id: int, array: np.ndarray, at: int = 0) -> None:
        """Overwrite a tensor, from its byte `at` on."""
        region = self.region(id)
        self.step.forget(self.aliases.root[id])
        self.device.write(region.buffer, region.offset + at, to_words(array, self.tensor(id).dtype))

    def weights(self) -> ConstantBuffers | None:
        """The constants, as this session and its siblings hold them."""
        return self._held

    def upload(self, id: int) -> None:
        """Write a constant as the file has it."""
        value = self.tensor(id)
        if value.constant is not None:
            upload(self.device, self._own[id], value)

    def upload_constants(self, progress: Callable[[int, int], None] | None = None) -> None:
        """All constants, unless another session has done so, and the state.

        `progress` is told of (bytes uploaded, bytes in all).
        """
        assert self._held is not None
        sizes = {id: n for id, n in self.plan.own.items() if not (self._held.uploaded and self._is_weight(id))}
        done, total = 0, sum(sizes.values())
        for id, size in sizes.items():
            self.upload(id)
            done += size
            if progress is not None:
                progress(done, total)
        self._held.uploaded = True

    def poison(self, keep: Collection[int] = ()) -> None:
        """Fill everything that a run must write before it reads with NaN, but not the inputs in `keep`."""
        inputs = [self._own[id] for id in self.graph.inputs if id in self._own and id not in keep]
        self._fill([*self._shared, *inputs], POISON)
        self.step.fill(POISON, keep)

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

    def copy_rows(self, copies: RowCopies) -> None:
        """Rows within every state tensor, by way of a buffer beside it."""
        check_rows_in(self._state_rows(), *(span for a, b, n in copies for span in ((a, n), (b, n))))
        rows = {id: self._row_bytes(id) for id in self.state}
        needed = max((n * size for _, _, n in copies for size in rows.values()), default=0)
        if not needed:
            return
        if self._staging is None or self._staging.size < needed:
            self._staging = self.device.buffer(needed, label="staging")
        parts = []
        for source, target, count in copies:
            for id, size in rows.items() if count else ():
                parts.append((self._own[id], source * size, self._staging, 0, count * size))
                parts.append((self._staging, 0, self._own[id], target * size, count * size))
        self.device.copy_parts(parts)

    def read_rows(self, first: int, count: int) -> list[np.ndarray]:
        check_rows_in(self._state_rows(), (first, count))
        sizes = {id: self._row_bytes(id) for id in self.state}
        data = self.device.read_parts([(self._own[id], first * n, count * n) for id, n in sizes.items()])
        values = [self.tensor(id) for id in self.state]
        return [from_words(d, v.dtype, (1, count, *v.dims[2:])).copy() for d, v in zip(data, values, strict=True)]

    def write_rows(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        for id, array in zip(self.state, arrays, strict=True):
            dims = self.tensor(id).dims
            if array.shape[:1] != (1,) or array.shape[2:] != dims[2:]:
                raise InputError(f"rows of {list(array.shape)} do not go into state of {list(dims)}")
            check_rows_in(self._state_rows(), (first, array.shape[1]))
            self.write(id, array, first * self._row_bytes(id))

    def _state_rows(self) -> int:
        return state_rows(self.tensor(id).dims for id in self.state)

    def _row_bytes(self, id: int) -> int:
        value = self.tensor(id)
        nbytes = gpu_bytes(value.dtype, value.dims) // max(1, value.dims[1])
        if nbytes % 4:
            raise UnsupportedError(f"rows of {nbytes} bytes are not whole words")
        return nbytes

    def _like_state(self) -> Buffers:
        return {id: self.device.buffer(self._own[id].size, label="snapshot") for id in self.state}

    # ---- sizes, the end

    def bytes_by_kind(self) -> dict[str, int]:
        own, inputs = self.plan.own, set(self.graph.inputs)
        state = self.aliases.state
        return {
            "weights": sum(n for id, n in own.items() if self._is_weight(id)) * self._has_weights,
            "state": sum(n for id, n in own.items() if id in state),
            "snapshot": sum(buffer.size for buffer in self._snapshot.values()),
            "inputs": sum(n for id, n in own.items() if id in inputs),
            "activations": sum(self.plan.shared_sizes),
        }

    def close(self) -> None:
        """Free all buffers; the constants, if no other session has them."""
        mine = [buffer for id, buffer in self._own.items() if not self._is_weight(id)]
        others = [self._staging] * bool(self._staging) + ([self._step.buffer] if self._step else [])
        _destroy([*self._shared, *mine, *self._snapshot.values(), *others])
        if self._held is not None:
            self._constants.release(self._held)
        self._shared, self._own, self._snapshot = [], {}, {}
        self._staging = self._step = self._held = None

    def tensor(self, id: int) -> TensorValue:
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        return value


def _destroy(buffers: Iterable[Any]) -> None:
    for buffer in buffers:
        buffer.destroy()
