"""Every op at its max, at 1 and at odd live sizes from one built session, on NaN-poisoned memory."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import CASES, Case
from op_runner import LEVELS, Built, check_blank_parameters, follow_levels

from hightide.gpu.device import Device
from hightide.runtime.gpu_session import GpuSession


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_op_follows_the_live_shape(case: Case, device: Device) -> None:
    follow_levels(case, device)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_graph_that_never_changes_is_the_same_byte_for_byte(case: Case, device: Device) -> None:
    """Outputs at the max do not depend on what ran before at other levels."""
    rng = np.random.default_rng(8)
    built = Built(case, rng)
    static = GpuSession(built.graph, device, dynamic=[False] * len(built.graph.inputs))
    live = GpuSession(built.graph, device)
    inputs = built.arrays({})
    before = built.arrays(LEVELS[2])
    live.run(before)
    live.reset()
    first, second = static.run(inputs), live.run(inputs)
    assert [a.tobytes() for a in first] == [b.tobytes() for b in second]
    static_grids = [(s.dispatch.kernel, s.dispatch.groups, s.dispatch.params) for s in static.level(inputs)[1].steps]
    live_grids = [(s.dispatch.kernel, s.dispatch.groups, s.dispatch.params) for s in live.level(inputs)[1].steps]
    assert static_grids == live_grids


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_parameters_of_zeros_write_nothing(case: Case, device: Device) -> None:
    built = Built(case, np.random.default_rng(9))
    session = GpuSession(built.graph, device)
    for live in LEVELS[:2]:
        check_blank_parameters(session, built.arrays(live))
