"""Random graphs on the GPU after all passes: the numbers of the graph as it was."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import RandomGraph, exact_results

from hightide.fuse import fuse
from hightide.gpu.device import Device
from hightide.runtime.gpu_session import GpuSession


def follow(session: GpuSession, made: RandomGraph, calls: list[list[np.ndarray]], poisoned: bool) -> None:
    for number, (given, want) in enumerate(zip(calls, exact_results(made.graph, calls)[0], strict=True)):
        if want is None:
            continue
        if poisoned:
            session.poison()
        for got, expected in zip(session.run(given), want, strict=True):
            reach = max(float(np.abs(expected).max(initial=0)), 1e-3)
            assert got.shape == expected.shape
            wrong = float(np.abs(got - expected).max(initial=0)) > 1e-4 * reach
            assert not wrong, f"call {number}\n{made.graph}"


SEEDS = [3, 9, *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 116))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fused_random_graph_gives_its_numbers(seed: int, device: Device) -> None:
    made = RandomGraph(seed)
    with GpuSession(fuse(made.graph), device) as session:
        follow(session, made, made.calls(), poisoned=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_inputs_come_again_in_any_order(seed: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session remembers of its buffers is true, whatever was written to them in between."""
    monkeypatch.setattr("hightide.runtime.step_block.SMALL_INPUT", 256)
    made = RandomGraph(seed)
    calls = made.calls()
    order = np.random.default_rng(seed).integers(len(calls), size=30)
    with GpuSession(fuse(made.graph), device) as session:
        follow(session, made, [calls[n] for n in order], poisoned=False)
