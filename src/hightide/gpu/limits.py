"""The most that an adapter can do, measured in a second or two: kernels are compared with it.

Results are kept in the cache folder, by adapter, driver, version of wgpu and way of measuring.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import wgpu

from hightide.gpu import measurements
from hightide.gpu.device import Device, whole
from hightide.gpu.native import handle, raising
from hightide.gpu.params import Params
from hightide.gpu.pipelines import BindGroup, Pipeline, pipelines
from hightide.gpu.queries import Queries
from hightide.gpu.timestamps import Timing, finest_timing
from hightide.wgsl.shader import shader

Work: TypeAlias = Literal["stream", "copy", "multiply", "nothing"]
Kind: TypeAlias = Literal["memory", "arithmetic", "dispatch"]
SECONDS, LEAST_RUNS = 0.08, 8  # spent on each variant of a kernel
SHORT_RUNS = 40  # of work that takes almost no time
# (threads of a workgroup, vec4s of a thread, in a run of its own): GPUs like the first two, llvmpipe the others.
STREAMS = ((64, 16, False), (256, 4, False), (64, 256, True), (256, 1024, True))
CHAINS = ((64, 2), (64, 4), (32, 6), (256, 8))  # (threads of a workgroup, independent chains of vec4s)
READ_BYTES = {False: 256 << 20, True: 64 << 20}  # past any cache; less on a software adapter, which reads slowly
FILE = "limits.json"
METHOD = 2  # of measuring: what another one measured is not used


@dataclass(frozen=True)
class Limits:
    """The most that was seen on an adapter."""

    read_gb_s: float  # vec4 loads in a stream
    copy_gb_s: float  # bytes read and bytes written
    fma_gflop_s: float  # independent multiply-adds of float32; each is two operations
    dispatch_us: float  # one more empty dispatch in a pass
    submit_us: float  # submit one empty dispatch and wait for it
    readback_us: float  # the same, with 16 bytes brought back

    def seconds(self, nbytes: int, flops: int) -> float:
        """The least time that a dispatch of so many bytes and operations can take here."""
        return max(nbytes / (self.read_gb_s * 1e9), flops / (self.fma_gflop_s * 1e9), self.dispatch_us * 1e-6)

    def binding(self, nbytes: int, flops: int) -> Kind:
        """Which limit that time comes from."""
        memory, arithmetic = nbytes / (self.read_gb_s * 1e9), flops / (self.fma_gflop_s * 1e9)
        if max(memory, arithmetic) <= self.dispatch_us * 1e-6:
            return "dispatch"
        return "memory" if memory >= arithmetic else "arithmetic"


def measure_limits(device: Device, *, fresh: bool = False) -> Limits:
    """The adapter's limits: from the cache folder, or measured now."""
    if not fresh and (known := known_limits(device)) is not None:
        return known
    limits = _measure(device)
    measurements.save(FILE, {**measurements.load(FILE), _key(device): asdict(limits)})
    return limits


def known_limits(device: Device) -> Limits | None:
    """The adapter's limits if they were measured before."""
    values = measurements.load(FILE).get(_key(device))
    if not isinstance(values, dict) or set(values) != {field.name for field in fields(Limits)}:
        return None
    try:
        numbers = {name: float(value) for name, value in values.items()}
    except (TypeError, ValueError, OverflowError):
        return None
    limits = Limits(**numbers)
    sound = all(0 <= number < math.inf for number in numbers.values()) and limits.read_gb_s and limits.fma_gflop_s
    return limits if sound else None


def _key(device: Device) -> str:
    adapter = device.adapter
    return " | ".join((adapter.name, adapter.backend, adapter.driver, f"wgpu {wgpu.__version__}", f"method {METHOD}"))


# ---- measuring


@dataclass(frozen=True)
class _Variant:
    """A measuring kernel; see `limits.wgsl`."""

    work: Work
    lanes: int = 64
    threads: int = 64
    per_thread: int = 1
    blocked: bool = False
    unroll: int = 1
    chains: int = 1

    def constants(self) -> tuple[tuple[str, int | bool | str], ...]:
        return tuple(sorted((name.upper(), value) for name, value in asdict(self).items()))


NOTHING = _Variant("nothing")


def _measure(device: Device) -> Limits:
    size = min(READ_BYTES[device.traits.software], device.max_binding) // 2
    bench = _Bench(device, size)
    threads = 2048 if device.traits.software else 1 << 18

    def memory(work: Work) -> float:
        variants = (
            _Variant(work, lanes, size // 16 // per_thread, per_thread, blocked, unroll=4)
            for lanes, per_thread, blocked in STREAMS
        )
        return size / min(bench.seconds(variant) for variant in variants)

    read, copy = memory("stream"), 2 * memory("copy")
    products = [(n, _Variant("multiply", lanes, threads, 1024, unroll=8, chains=n)) for lanes, n in CHAINS]
    fma = max(threads * 1024 * chains * 4 * 2 / bench.seconds(variant) for chains, variant in products)
    return Limits(
        read_gb_s=read / 1e9,
        copy_gb_s=copy / 1e9,
        fma_gflop_s=fma / 1e9,
        dispatch_us=bench.dispatch() * 1e6,
        submit_us=bench.submit() * 1e6,
        readback_us=bench.readback() * 1e6,
    )


class _Bench:
    """The measuring kernels over two buffers."""

    def __init__(self, device: Device, size: int) -> None:
        self.device = device
        self.source, self.target = (device.buffer(size, label="limits") for _ in range(2))
        self._params = Params(device, 1)
        device.clear(self.source, self.target)
        device.write(self.source, 0, np.array([0.999, 0.998, 0.997, 0.996] * 2, np.float32))
        device.flush()

    def seconds(self, variant: _Variant) -> float:
        """The shortest of several runs: what the adapter can do is what disturbs it least."""
        if self.device.traits.software:
            # Its threads are ours, so their CPU time can be had: right on a busy machine too.
            run = self._timed(variant, 1, time.process_time, os.cpu_count() or 1)
        else:
            run = self._run(variant, 1)
        run()  # compiled now, if not before
        taken: list[float] = []
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until or len(taken) < LEAST_RUNS:
            taken.append(run())
        return min(taken)

    def dispatch(self) -> float:
        """One more dispatch in a pass."""
        few, many = (self._run(NOTHING, times) for times in (8, 108))
        pairs = [(few(), many()) for _ in range(SHORT_RUNS)]
        return max(0.0, min(m for _, m in pairs) - min(f for f, _ in pairs)) / 100

    def submit(self) -> float:
        """Submit one dispatch and wait for it."""
        run = self._timed(NOTHING, 1)
        return min(run() for _ in range(SHORT_RUNS))

    def readback(self) -> float:
        """The same, with a few bytes brought back."""
        pipeline, group = self._compiled(NOTHING)
        small, times = self.device.buffer(16, label="limits"), []
        for _ in range(SHORT_RUNS):
            begin = time.perf_counter()
            with raising():
                self.device.wgpu.queue.submit([self._encoded(NOTHING, 1, pipeline, group)])
            self.device.read(small)
            times.append(time.perf_counter() - begin)
        return min(times)

    def _run(self, variant: _Variant, times: int) -> Callable[[], float]:
        """A function that dispatches a kernel so many times, and says how long the adapter took."""
        queries = self._queries
        if queries is None:
            return self._timed(variant, times)
        pipeline, group = self._compiled(variant)

        def run() -> float:
            queries.fit(2)
            with raising():
                self.device.wgpu.queue.submit([self._encoded(variant, times, pipeline, group, queries)])
            self.device.wait()
            first, last = queries.ticks().tolist()
            return (last - first) * queries.period * 1e-9

        return run

    def _timed(
        self, variant: _Variant, times: int, clock: Callable[[], float] = time.perf_counter, threads: int = 1
    ) -> Callable[[], float]:
        """The same by a clock of the host, which counts this many threads."""
        pipeline, group = self._compiled(variant)

        def run() -> float:
            with raising():
                commands = self._encoded(variant, times, pipeline, group)
                begin = clock()
                self.device.wgpu.queue.submit([commands])
            self.device.wait()
            return (clock() - begin) / threads

        return run

    def _compiled(self, variant: _Variant) -> tuple[Pipeline, BindGroup]:
        made = pipelines(self.device)
        name = f"limits {variant.work}"
        pipeline = made.get(shader("hightide.gpu", "limits.wgsl", name, variant.constants(), frozenset()))
        return pipeline, made.bind(pipeline, self._params.buffer, None, [whole(self.source), whole(self.target)])

    def _encoded(
        self, variant: _Variant, times: int, pipeline: Pipeline, group: BindGroup, queries: Queries | None = None
    ) -> object:
        encoder = self.device.wgpu.create_command_encoder()
        compute = encoder.begin_compute_pass(timestamp_writes=None if queries is None else queries.around())
        compute.set_pipeline(pipeline.handle)
        compute.set_bind_group(0, group.handle, [0])
        for _ in range(times):
            compute.dispatch_workgroups(variant.threads // variant.lanes, 1, 1)
        compute.end()
        if queries is not None:
            queries.resolve(handle(encoder))
        return encoder.finish()

    @cached_property
    def _queries(self) -> Queries | None:
        return None if finest_timing(self.device) is Timing.SUBMITS else Queries(self.device)
