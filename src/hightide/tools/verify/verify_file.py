"""What `hightide verify` does, without the printing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import DeviceError, InputError
from hightide.formats.instructions import KernelCall
from hightide.pte.kernel_calls import is_host_work
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.session import Session
from hightide.tools.opened_file import OpenedFile, Part
from hightide.tools.verify.level_choice import level_of, levels_of
from hightide.tools.verify.part_verifier import PartVerifier, VerifySettings
from hightide.tools.verify.results import VerifyReport
from hightide.tools.verify.side_by_side import TOLERANCE, PairedLevel, compare_runs

Tell = Callable[[int, int], None]  # (levels done, in all)


@dataclass(frozen=True)
class WantedLevels:
    """The levels to verify: values by symbol, or complete levels, or the level of given inputs."""

    values: Mapping[str, Sequence[int]]
    exact: Sequence[Mapping[str, int]] = ()
    given: Sequence[np.ndarray] | None = None

    def levels(self, part: Part) -> list[dict[str, int]]:
        if self.given is not None:
            return [level_of(part, self.given)]
        return levels_of(part, self.values, self.exact)


def verify_file(
    opened: OpenedFile,
    where: WantedLevels,
    settings: VerifySettings,
    devices: Sequence[str | int | None],
    tell: Tell | None = None,
) -> VerifyReport:
    """Verify each part op by op at each level, on every device, and compare the other devices with the first."""
    if not opened.parts:
        raise InputError(f"{opened.path.name} has nothing in method {opened.method} that runs on a GPU")
    report = VerifyReport(opened.path.name, [], settings.seed)
    plans = [(part, where.levels(part)) for part in opened.parts]
    done, count = 0, sum(len(levels) for _, levels in plans) * len(devices)
    for part, levels in plans:
        sessions = [part.session(device) for device in devices]
        report.devices = [session.name for session in sessions]
        verifiers = [PartVerifier(part, s, settings) for s in sessions if isinstance(s, GpuSession)]
        if not verifiers:
            raise DeviceError("there is no WebGPU adapter to verify; on the references there is nothing to compare")
        for at in levels:
            given = verifiers[0].inputs_at(at) if where.given is None else where.given
            state = verifiers[0].state_at(at)
            for verifier in verifiers:
                report.levels.append(verifier.level(at, given, state))
                done += 1
                if tell is not None:
                    tell(done, count)
            if len(sessions) > 1:
                report.pairs += _beside(part, at, sessions, given, state, settings)
                done = min(count, done + len(sessions) - len(verifiers))
    report.notes += _not_verified(opened)
    if len(devices) > 1:
        report.against = " and ".join(report.devices[1:])
    return report


def compare_files(
    opened: OpenedFile, other: OpenedFile, where: WantedLevels, settings: VerifySettings, tell: Tell | None = None
) -> VerifyReport:
    """Two files on one device at each level; nothing is compared with the references."""
    if [len(p.graph.inputs) for p in opened.parts] != [len(p.graph.inputs) for p in other.parts]:
        raise InputError(f"{opened.path.name} and {other.path.name} do not take the same inputs")
    report = VerifyReport(opened.path.name, [], settings.seed, against=other.path.name)
    tolerance = TOLERANCE if settings.tolerance is None else settings.tolerance
    for part, twin in zip(opened.parts, other.parts, strict=True):
        levels = where.levels(part)
        sessions = [part.session(), twin.session()]
        report.devices = [sessions[0].name]
        first = PartVerifier(part, _on_gpu(sessions[0]), settings)
        second = PartVerifier(twin, _on_gpu(sessions[1]), settings)
        for n, at in enumerate(levels, 1):
            given = first.inputs_at(at) if where.given is None else list(where.given)
            fitting = [a.astype(spec.dtype) for a, spec in zip(given, sessions[1].specs, strict=True)]
            first.state_at(at)
            second.state_at({name: value for name, value in at.items() if name in twin.symbols})
            pair = compare_runs(part.name, at, sessions[0], sessions[1], given, tolerance, fitting)
            report.pairs.append(pair)
            if tell is not None:
                tell(n, len(levels))
    return report


def _not_verified(opened: OpenedFile) -> list[str]:
    """What of a program runs on NumPy in any case."""
    if opened.program is None:
        return []
    calls = opened.program.file.methods[opened.method].instructions
    kernels = dict.fromkeys(i.op for i in calls if isinstance(i, KernelCall) and not is_host_work(i.op))
    return [f"outside the delegates, on NumPy, and not looked at: {', '.join(kernels)}"] if kernels else []


def _beside(
    part: Part,
    at: Mapping[str, int],
    sessions: Sequence[Session],
    given: Sequence[Any],
    state: Mapping[int, np.ndarray],
    settings: VerifySettings,
) -> list[PairedLevel]:
    """The other sessions beside the first, from one state."""
    tolerance = TOLERANCE if settings.output_tolerance is None else settings.output_tolerance
    pairs = []
    for other in sessions[1:]:
        for session in (sessions[0], other):
            session.write_state([state[id] for id in sorted(state)])
        pairs.append(compare_runs(part.name, at, sessions[0], other, given, tolerance))
    return pairs


def _on_gpu(session: Session) -> GpuSession:
    if isinstance(session, GpuSession):
        return session
    assert isinstance(session, CpuSession)
    raise DeviceError("there is no WebGPU adapter to run the files on")
