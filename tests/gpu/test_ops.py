"""Every op at its max, at 1 and at odd live sizes from one built session, on NaN-poisoned memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from op_cases import CASES
from op_runner import LEVELS, Built, check_blank_parameters

from hightide.gpu.device import Device
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.doctor.selftest import follow_levels


@dataclass
class BuiltCase:
    built: Built
    session: GpuSession


# The tests of a case run in one process, with one session.
EACH = [pytest.param(case, id=case.name, marks=pytest.mark.xdist_group(case.name)) for case in CASES]


@pytest.fixture(scope="module", params=EACH)
def case(request: pytest.FixtureRequest, device: Device) -> Iterator[BuiltCase]:
    built = Built(request.param, np.random.default_rng(7))
    with GpuSession(built.graph, device) as session:
        yield BuiltCase(built, session)


def test_op_follows_the_live_shape(case: BuiltCase) -> None:
    for level in follow_levels(case.built, case.session):
        assert not level.problem, level.problem


def test_a_graph_that_never_changes_is_the_same_byte_for_byte(case: BuiltCase, device: Device) -> None:
    """Outputs at the max do not depend on what ran before at other levels."""
    built, live = case.built, case.session
    inputs, before = built.arrays({}), built.arrays(LEVELS[2])
    live.run(before)
    live.reset()
    with GpuSession(built.graph, device, dynamic=[False] * len(built.graph.inputs)) as static:
        first, second = static.run(inputs), live.run(inputs)
        assert [a.tobytes() for a in first] == [b.tobytes() for b in second]
        plans = [session.level(inputs)[1].steps for session in (static, live)]
    static_grids, live_grids = ([(s.dispatch.kernel, s.dispatch.groups, s.dispatch.params) for s in p] for p in plans)
    assert static_grids == live_grids


def test_parameters_of_zeros_write_nothing(case: BuiltCase) -> None:
    for live in LEVELS[:2]:
        check_blank_parameters(case.session, case.built.arrays(live))
