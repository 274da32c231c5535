"""Kernels beside others that only read the same bytes in the same layout.

Those are in `benchmarks/linear.py` and `benchmarks/attention.py`, which know the layouts; a stream of reads is no
measure for a layout that the adapter reads more slowly.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import attention
import linear

from hightide.gpu.device import Device
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.bench.samples import TimeSample, timed

HEADS, KV_HEADS, DEPTH = 9, 3, 64  # SmolLM2's
ROUNDS = 9


def linear_share(device: Device) -> float:
    """A q4 GEMV, K 2048, N 8192, as a share of reading its weights."""
    bench = linear.build(device, "Q4", 2048, 8192, 1, {})
    return _share(device, linear.runner(bench.session, bench.step(1)[0]), linear.reader(bench, device))


def attention_share(device: Device, context: int) -> float:
    """Attention of one token over `context` others as a share of reading K and V."""
    session = GpuSession(attention.attend_graph(HEADS, KV_HEADS, DEPTH, 1, context), device)
    read = attention.reader(device, context * KV_HEADS * DEPTH // 4)
    return _share(device, attention.step_at(session, 1, context - 1), read)


def _share(device: Device, work: Callable[[], object], read: Callable[[], object]) -> float:
    """How long reading takes by how long the work takes: medians, in turns."""
    work()
    read()

    def cost(sample: TimeSample) -> float:
        return sample.cpu_ms if device.traits.software else sample.wall_ms

    taken = [(cost(timed(work)[0]), cost(timed(read)[0])) for _ in range(ROUNDS)]
    return statistics.median(reading for _, reading in taken) / statistics.median(working for working, _ in taken)
