"""Kernels beside others that only read the same bytes in the same layout, where hightide runs from its source tree.

The kernels that read are in `benchmarks/linear.py` and `benchmarks/attention.py`, which know the layouts; a
stream of reads is no measure for a layout that the adapter reads more slowly.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from hightide.gpu.device import Device
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.bench.samples import Sample, timed

FOLDER = Path(__file__).parents[3] / "benchmarks"
HEADS, KV_HEADS, DEPTH = 9, 3, 64  # SmolLM2's
ROUNDS = 9


def linear_share(device: Device) -> float | None:
    """A q4 GEMV, K 2048, N 8192, as a share of reading its weights; None outside of a source tree."""
    module = _module("linear")
    if module is None:
        return None
    bench = module.build(device, "Q4", 2048, 8192, 1, {})
    return _share(device, module.runner(bench.session, bench.step(1)[0]), module.reader(bench, device))


def attention_share(device: Device, context: int) -> float | None:
    """Attention of one token over `context` others as a share of reading K and V."""
    module = _module("attention")
    if module is None:
        return None
    session = GpuSession(module.attend_graph(HEADS, KV_HEADS, DEPTH, 1, context), device)
    read = module.reader(device, context * KV_HEADS * DEPTH // 4)
    return _share(device, module.step_at(session, 1, context - 1), read)


def _share(device: Device, work: Callable[[], object], read: Callable[[], object]) -> float:
    """How long reading takes by how long the work takes: medians, in turns."""
    work()
    read()

    def cost(sample: Sample) -> float:
        return sample.cpu_ms if device.traits.software else sample.wall_ms

    taken = [(cost(timed(work)[0]), cost(timed(read)[0])) for _ in range(ROUNDS)]
    return statistics.median(reading for _, reading in taken) / statistics.median(working for working, _ in taken)


def _module(name: str) -> ModuleType | None:
    path = FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"hightide_benchmarks_{name}", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
