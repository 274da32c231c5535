"""Random graphs on the GPU after all passes: the numbers of the graph as it was."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import RandomGraph

from hightide.errors import InputError
from hightide.fuse import fuse
from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession


def exact_results(graph: Graph, calls: list[list[np.ndarray]]) -> list[list[np.ndarray] | None]:
    session, found = CpuSession(graph, dtype="float64"), []
    for given in calls:
        try:
            found.append(session.run(given))
        except InputError:
            found.append(None)
    return found


@pytest.mark.parametrize("seed", [3, 9, *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 116))])
def test_a_fused_random_graph_gives_its_numbers(seed: int, device: Device) -> None:
    made = RandomGraph(seed)
    calls = made.calls()
    with GpuSession(fuse(made.graph), device) as session:
        for given, want in zip(calls, exact_results(made.graph, calls), strict=True):
            if want is None:
                continue
            session.poison()
            for got, expected in zip(session.run(given), want, strict=True):
                reach = max(float(np.abs(expected).max(initial=0)), 1e-3)
                assert got.shape == expected.shape
                assert float(np.abs(got - expected).max(initial=0)) <= 1e-4 * reach, f"seed {seed}\n{made.graph}"
