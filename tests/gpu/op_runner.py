"""Runs op cases: through the levels against the float64 reference, and with parameters of zeros."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from hightide.gpu.device import Device
from hightide.ops import REGISTRY
from hightide.ops.case import Case
from hightide.runtime.case_graph import LEVELS
from hightide.runtime.case_graph import CaseGraph as Built
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.doctor.selftest import Trial, run_trial

__all__ = ["LEVELS", "Built", "check_blank_parameters", "follow_levels", "of_four_lanes", "one_of_each_family"]


@cache
def of_four_lanes(device: Device) -> Device:
    """The same device, as if its subgroups had four lanes: kernels for those are right on larger ones too."""
    if device.traits.subgroup_size < 4:
        pytest.skip(f"{device.adapter.name} has no subgroups of four lanes or more")
    narrow = copy(device)
    narrow.traits = replace(device.traits, subgroup_size=4)
    return narrow


def one_of_each_family(cases: Iterable[Case]) -> list[Any]:
    """The first case of each family is fast to have; all of them are slow."""
    seen: set[str] = set()
    params = []
    for case in cases:
        family = REGISTRY[case.op].family
        params.append(pytest.param(case, id=case.name, marks=[pytest.mark.slow] if family in seen else []))
        seen.add(family)
    return params


def follow_levels(case: Case, device: Device, **choices: str) -> None:
    """One session at every level, on memory that is NaN where a run has not written."""
    result = run_trial(Trial(case, tuple(choices.items())), device)
    assert not result.problem, result.problem


def check_blank_parameters(session: GpuSession, inputs: list[np.ndarray]) -> None:
    """With parameters of zeros no kernel writes anything: that is how encoded commands are got rid of."""
    session.run(inputs)
    session.poison()
    recording = session.recording(inputs)
    before = _contents(session)
    session.recorder.run_blank(recording)
    assert _contents(session) == before


def _contents(session: GpuSession) -> list[bytes]:
    return [bytes(session.device.read(buffer)) for buffer in session.memory.buffers()]
