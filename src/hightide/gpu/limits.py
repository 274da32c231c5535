"""What an adapter can do at most, measured in a second or two: what kernels are compared with.

Kept in the cache folder by adapter, driver, version of wgpu and way of measuring.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib import resources
from string import Template
from typing import Any, Literal, TypeAlias

import numpy as np
import wgpu

from hightide.folders import cache_folder
from hightide.gpu.device import Device, raising
from hightide.gpu.queries import Queries
from hightide.gpu.timestamps import Timing, finest_timing

Entry: TypeAlias = Literal["stream", "copy", "multiply", "nothing"]
Kind: TypeAlias = Literal["memory", "arithmetic", "dispatch"]
SECONDS, LEAST_RUNS = 0.08, 8  # spent on each variant of a kernel
SHORT_RUNS = 40  # of what takes no time worth a word
EMPTY: dict[str, Any] = dict(LANES=64, THREADS=64, PER_THREAD=1)
# (threads of a workgroup, vec4s of a thread, in a run of its own): GPUs like the first two, llvmpipe the others.
STREAMS = ((64, 16, False), (256, 4, False), (64, 256, True), (256, 1024, True))
CHAINS = ((64, 2), (64, 4), (32, 6), (256, 8))  # (threads of a workgroup, independent chains of vec4s)
READ_BYTES = {False: 256 << 20, True: 64 << 20}  # past any cache; less on a software adapter, which reads slowly
FILE = "limits.json"
METHOD = 2  # of measuring: what another one measured is not kept


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
    key = _key(device)
    if not fresh and (known := _load().get(key)) is not None:
        return known
    limits = _measure(device)
    _save({**_load(), key: limits})
    return limits


def known_limits(device: Device) -> Limits | None:
    """The adapter's limits if they were measured before."""
    return _load().get(_key(device))


# ---- measuring


def _measure(device: Device) -> Limits:
    size = min(READ_BYTES[device.traits.software], device.max_binding) // 2
    bench = _Bench(device, size)
    vectors = size // 16
    memory: list[dict[str, Any]] = [
        dict(LANES=lanes, THREADS=vectors // per_thread, PER_THREAD=per_thread, BLOCKED=blocked, UNROLL=4)
        for lanes, per_thread, blocked in STREAMS
    ]
    read = max(size / bench.seconds("stream", **how) for how in memory)
    copy = max(2 * size / bench.seconds("copy", **how) for how in memory)
    threads = 2048 if device.traits.software else 1 << 18
    fma = 0.0
    for lanes, chains in CHAINS:
        seconds = bench.seconds("multiply", LANES=lanes, THREADS=threads, PER_THREAD=1024, CHAINS=chains, UNROLL=8)
        fma = max(fma, threads * 1024 * chains * 4 * 2 / seconds)
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
        self._queries = None if finest_timing(device) is Timing.SUBMITS else Queries(device)
        with raising():
            encoder = device.wgpu.create_command_encoder()  # memory that was never written may not be there yet
            encoder.clear_buffer(self.source, 0, size)
            encoder.clear_buffer(self.target, 0, size)
            device.wgpu.queue.submit([encoder.finish()])
            device.wgpu.queue.write_buffer(self.source, 0, np.array([0.999, 0.998, 0.997, 0.996] * 2, np.float32))
            device.wgpu._poll_wait()

    def seconds(self, entry: Entry, times: int = 1, **how: Any) -> float:
        """The shortest of several runs of `times` dispatches: what the adapter can do is what disturbs it least."""
        run = self._run(entry, times, **how)
        run()  # compiled now, if not before
        taken: list[float] = []
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until or len(taken) < LEAST_RUNS:
            taken.append(run())
        return min(taken)

    def dispatch(self) -> float:
        """One more dispatch in a pass."""
        few, many = (self._run("nothing", times, **EMPTY) for times in (8, 108))
        pairs = [(few(), many()) for _ in range(SHORT_RUNS)]
        return max(0.0, min(m for _, m in pairs) - min(f for f, _ in pairs)) / 100

    def submit(self) -> float:
        run = self._run("nothing", 1, host=True, **EMPTY)
        return min(run() for _ in range(SHORT_RUNS))

    def readback(self) -> float:
        run = self._run("nothing", 1, wait=False, **EMPTY)
        small, times = self.device.buffer(16, label="limits"), []
        for _ in range(SHORT_RUNS):
            begin = time.perf_counter()
            run()
            self.device.read(small)
            times.append(time.perf_counter() - begin)
        return min(times)

    def _run(
        self, entry: Entry, times: int, *, host: bool = False, wait: bool = True, **how: Any
    ) -> Callable[[], float]:
        device, queries = self.device.wgpu, None if host or not wait else self._queries
        clock, threads = time.perf_counter, 1
        if self.device.traits.software and entry != "nothing":
            # Its threads are ours, so their CPU time can be had: right on a busy machine too.
            clock, threads, queries = time.process_time, os.cpu_count() or 1, None
        groups = how["THREADS"] // how["LANES"]
        with raising():
            module = device.create_shader_module(code=_source(**how), label=f"limits {entry}")
            pipeline = device.create_compute_pipeline(
                layout=self._layout[1], compute={"module": module, "entry_point": entry}
            )

        def run() -> float:
            with raising():
                if queries is not None:
                    queries.fit(2)
                encoder = device.create_command_encoder()
                compute = encoder.begin_compute_pass(timestamp_writes=None if queries is None else queries.around())
                compute.set_pipeline(pipeline)
                compute.set_bind_group(0, self._layout[2])
                for _ in range(times):
                    compute.dispatch_workgroups(groups, 1, 1)
                compute.end()
                if queries is not None:
                    queries.resolve(encoder._internal)
                commands = encoder.finish()
                begin = clock()
                device.queue.submit([commands])
                if wait:
                    device._poll_wait()
                end = clock()
            if queries is None:
                return (end - begin) / threads
            first, last = queries.ticks().tolist()
            return (last - first) * queries.period * 1e-9

        return run

    @cached_property
    def _layout(self) -> tuple[Any, Any, Any]:
        device = self.device.wgpu
        kinds = ("read-only-storage", "storage")
        entries = [{"binding": n, "visibility": "COMPUTE", "buffer": {"type": kind}} for n, kind in enumerate(kinds)]
        layout = device.create_bind_group_layout(entries=entries)
        group = device.create_bind_group(
            layout=layout,
            entries=[{"binding": n, "resource": {"buffer": b}} for n, b in enumerate((self.source, self.target))],
        )
        return layout, device.create_pipeline_layout(bind_group_layouts=[layout]), group


def _source(CHAINS: int = 2, UNROLL: int = 1, **how: Any) -> str:
    chains, unrolled = range(CHAINS), range(UNROLL)
    defines = {name: str(value).lower() for name, value in {"BLOCKED": False, "UNROLL": UNROLL, **how}.items()}
    products = [f"        sum{n} = fma(sum{n}, x, y);" for n in chains]
    return Template(resources.files("hightide.gpu").joinpath("limits.wgsl").read_text()).substitute(
        defines,
        SUMS="\n".join(f"        {'ab'[n % 2]} += input[at + {n}u * STEP];" for n in unrolled),
        COPIES="\n".join(f"        output[at + {n}u * STEP] = input[at + {n}u * STEP];" for n in unrolled),
        START="\n".join(f"    var sum{n} = x * {n}.5;" for n in chains),
        PRODUCTS="\n".join(products * UNROLL),
        TOTAL=" + ".join(f"sum{n}" for n in chains),
    )


# ---- the cache


def _key(device: Device) -> str:
    adapter = device.adapter
    return " | ".join((adapter.name, adapter.backend, adapter.driver, f"wgpu {wgpu.__version__}", f"method {METHOD}"))


def _load() -> dict[str, Limits]:
    """What was measured before; a file that cannot be read counts as none."""
    names = {field.name for field in fields(Limits)}
    found: dict[str, Limits] = {}
    with suppress(OSError, ValueError):
        for key, values in json.loads((cache_folder() / FILE).read_text()).items():
            if isinstance(values, dict) and set(values) == names:
                found[key] = Limits(**{name: float(value) for name, value in values.items()})
    return found


def _save(every: dict[str, Limits]) -> None:
    with suppress(OSError):  # a home that cannot be written: measured again next time
        cache_folder().mkdir(parents=True, exist_ok=True)
        text = json.dumps({key: asdict(limits) for key, limits in every.items()}, indent=2)
        (cache_folder() / FILE).write_text(text)
