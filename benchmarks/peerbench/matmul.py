"""One q4 matmul on hightide: K 2048, N 8192, group 32, the same matrix that the peers multiply by."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from hightide.gpu.device import Device
from hightide.gpu.limits import Limits
from hightide.ops.builder import GraphBuilder
from hightide.runtime.gpu_session import GpuSession, Ticket
from hightide.tools.bench.kernel_shares import KernelShare, shares_of
from hightide.tools.bench.samples import Measured, TimeSample, timed

ROWS = (1, 128)
ENGINES = Path(__file__).parent / "engines"
K, N, GROUP = 2048, 8192, 32


class Matmul:
    name = "hightide"
    on_cpu = False

    def __init__(self, device: Device) -> None:
        packed, scales = _matrix()
        b = GraphBuilder()
        x = b.input((max(ROWS), K), "float32")
        given = (b.constant(packed), b.constant(np.ascontiguousarray(scales.T)))
        self.session = GpuSession(b.graph(b.call("et_vk.linear_q4gsw.default", x, *given, GROUP, None)), device)
        self.weight_bytes = packed.nbytes + scales.nbytes
        nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(N, K // GROUP, GROUP)
        self._first_column = ((nibbles[0] - 8.0) * scales[0, :, None]).reshape(K)

    def matmul(self, rows: int, count: int) -> Measured:
        x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
        samples: list[TimeSample] = []
        for _ in range(count):
            sample, (y,) = timed(lambda: self.session.run([x]))
            samples.append(sample)
        np.testing.assert_allclose(y[:, 0], x @ self._first_column, atol=1e-3)
        return Measured(tuple(samples))


def matmul_shares(matmul: Matmul, limits: Limits, rows: Sequence[int], runs: int) -> list[KernelShare]:
    """The kernels of a matmul of so many rows, each beside its limit."""
    found: list[KernelShare] = []
    for count in rows:
        x = np.ones((count, K), np.float32)
        found += shares_of(f"matmul M={count}", matmul.session, limits, runs, partial(_run, matmul.session, x))
    return found


def _run(session: GpuSession, x: np.ndarray) -> Ticket:
    ticket = session.launch([x])
    session.collect(ticket)
    return ticket


def _matrix() -> tuple[np.ndarray, np.ndarray]:
    """What `engines/quantized.py` gives every peer; it is no module of this package, since peers run without it."""
    sys.path.insert(0, str(ENGINES))
    try:
        from quantized import q4_matrix
    finally:
        sys.path.remove(str(ENGINES))
    packed, scales = q4_matrix()
    return packed, scales
