"""Kernels compiled on a device of their own, beside the one that works.

Mesa's software driver compiles a kernel when it is first dispatched, in the one thread of the device's queue: 14 s for
the 25 kernels of SmolLM2, with the other cores idle. What it has compiled is in its cache on the disk, for all devices.
So other devices go through the kernels from the last to the first, while the one that works meets them from the first
to the last: each finds what the others have done.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from hightide.errors import HightideError
from hightide.gpu.device import Adapter, Device, Region, whole
from hightide.gpu.native import raising
from hightide.gpu.pipelines import Pipelines
from hightide.wgsl.shader import PARAMS_SIZE, SYMINT_SLOTS, Shader

TENSOR_BYTES = 256  # of what kernels are given to do nothing with
MOST_HELPERS = 3
SLOW_SECONDS = 0.2  # that a kernel takes only if it is not in the driver's cache


def helpers(adapter: Adapter) -> int:
    """How many more devices can compile at once, so that it helps this one; mostly none."""
    in_queue = "llvmpipe" in adapter.name and not os.environ.get("MESA_SHADER_CACHE_DISABLE")
    return min(MOST_HELPERS, (os.cpu_count() or 1) - 1) if in_queue else 0


class CompileAhead:
    """Threads that compile kernels, the last first, until all are done or `stop` is called.

    They begin with `start`, or when a kernel that was met shows that it was not in the driver's cache. Their devices
    are opened before: a driver that compiles opens none.
    """

    def __init__(self, adapter: Adapter, shaders: Sequence[Shader], count: int) -> None:
        self._begun: dict[Shader, threading.Event] = {}  # here or elsewhere: whether it need not be waited for
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._last = math.inf  # when a kernel was met
        self._last_first = shaders[::-1]
        self._works: list[_Blank] = []
        with suppress(HightideError):  # then fewer help
            for _ in range(count):
                self._works.append(_Blank(Device(adapter)))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        if self._threads:
            return
        for n, work in enumerate(self._works):
            share = self._last_first[n :: len(self._works)]
            thread = threading.Thread(target=self._compile, args=(work, share), name="compile ahead")
            thread.start()
            self._threads.append(thread)

    def meet(self, shader: Shader) -> None:
        """Before a kernel is dispatched elsewhere: wait for it if it is begun here, else leave it out here."""
        if time.monotonic() - self._last > SLOW_SECONDS:
            self.start()
        begun = self._begin(shader)
        if begun is None:
            self._begun[shader].set()
        else:
            begun.wait()
        self._last = time.monotonic()

    def stop(self) -> None:
        """Wait for the kernels that are begun."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _begin(self, shader: Shader) -> threading.Event | None:
        """None for who begins it; else what tells that it is done."""
        with self._lock:
            begun = self._begun.get(shader)
            if begun is None:
                self._begun[shader] = threading.Event()
            return begun

    def _compile(self, work: _Blank, shaders: Sequence[Shader]) -> None:
        with suppress(HightideError):  # whoever needs the kernel will hear of it
            for shader in shaders:
                if self._ended.is_set():
                    break
                if self._begin(shader) is None:
                    try:
                        work.run(shader)
                    finally:
                        self._begun[shader].set()


class _Blank:
    """Runs kernels with all parameters zero, so that they write nothing."""

    def __init__(self, device: Device) -> None:
        self.device, self.pipelines = device, Pipelines(device)
        self.params = device.buffer(PARAMS_SIZE, "UNIFORM")
        self.symints = whole(device.buffer(4 * SYMINT_SLOTS, "UNIFORM"))
        self.tensors: list[Region] = []

    def run(self, shader: Shader) -> None:
        bound = len(shader.interface.read_names) + len(shader.interface.write_names)
        self.tensors += [whole(self.device.buffer(TENSOR_BYTES)) for _ in range(bound - len(self.tensors))]
        pipeline = self.pipelines.get(shader)
        group = self.pipelines.bind(pipeline, self.params, self.symints, self.tensors[:bound])
        with raising():
            encoder = self.device.wgpu.create_command_encoder()
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(pipeline.handle)
            compute.set_bind_group(0, group.handle, [0])
            compute.dispatch_workgroups(1)
            compute.end()
            self.device.wgpu.queue.submit([encoder.finish()])
        self.device.wait()
