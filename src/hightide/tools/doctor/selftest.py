"""Checks every kernel route on one adapter against the NumPy references in float64.

Each op case runs in one session at all its levels, on memory that is NaN until a run writes it: with the routes that
the adapter takes, then with every other option of a choice that changes the dispatches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from queue import SimpleQueue

import numpy as np

from hightide.errors import HightideError
from hightide.gpu.device import Device
from hightide.ops.case import Case, all_cases, cases_of
from hightide.ops.choices import CHOICES, Choices
from hightide.ops.contract import Kernel
from hightide.planning.levels import InputElements, MaxElements, graph_inputs
from hightide.planning.planner import Planner
from hightide.runtime.case_graph import CaseGraph
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.device_routes import forcing, tuned_routes
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.need import Need, needs_of

THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Trial:
    """A case, and the choices forced for it."""

    case: Case
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        forced = " ".join(f"{choice}={option}" for choice, option in self.choices)
        return f"{self.case.name} {forced}".strip()


@dataclass(frozen=True)
class TrialResult:
    """The routes that a trial took, its largest error as a share of the range, and what is wrong, or ""."""

    trial: Trial
    routes: frozenset[str]
    error: float
    problem: str = ""
    verdicts: Mapping[Need, str] = field(default_factory=dict)  # what is wrong with the case's op on its kernels, or ""


@dataclass(frozen=True)
class LevelOutcome:
    """The same of one output at one level."""

    routes: frozenset[str]
    error: float
    problem: str
    needs: frozenset[Need]  # of the case's op


def trials(device: Device, cases: Sequence[Case] | None = None) -> list[Trial]:
    """Every case with the adapter's routes, then with each option that leads to kernels not tried yet."""
    found, usual = [], Choices(device.traits, tuned_routes(device.adapter))
    for case in [*all_cases(), *cases_of("blocks")] if cases is None else cases:
        graph = CaseGraph(case, np.random.default_rng(7))
        met = _kernels(graph, usual)
        found.append(Trial(case))
        for choice in CHOICES.values():
            for option in choice.options:
                if not choice.exact or not choice.possible(device.traits, option):
                    continue
                kernels = _kernels(graph, usual, {choice.name: option})
                if not kernels <= met:
                    met |= kernels
                    found.append(Trial(case, ((choice.name, option),)))
    return found


def self_test(
    device: Device, cases: Sequence[Case] | None = None, progress: Callable[[int, int], None] | None = None
) -> list[TrialResult]:
    """All trials, in order; one that raises an error is a result with a problem."""
    planned = trials(device, cases)
    # A device for each thread: llvmpipe compiles kernels one by one in the thread of a device's queue.
    free: SimpleQueue[Device] = SimpleQueue()
    workers = max(1, min(THREADS, len(planned) // 8))
    for extra in [device, *(Device(device.adapter) for _ in range(workers - 1))]:
        free.put(extra)

    def run(trial: Trial) -> TrialResult:
        mine = free.get()
        try:
            return run_trial(trial, mine)
        finally:
            free.put(mine)

    results: list[TrialResult] = []
    with ThreadPoolExecutor(workers, "self-test") as pool:
        for result in pool.map(run, planned):
            if progress is not None:
                progress(len(results), len(planned))
            results.append(result)
    return results


def kernels_digest() -> str:
    """Of all kernels and ops: what was checked with others says nothing."""
    digest = sha256()
    pending = [resources.files("hightide.ops")]
    while pending:
        entry = pending.pop()
        if entry.is_dir():
            pending += sorted(entry.iterdir(), key=lambda e: e.name)
        elif entry.name.endswith((".wgsl", ".py")):
            digest.update(entry.name.encode() + entry.read_bytes())
    return digest.hexdigest()[:16]


def run_trial(trial: Trial, device: Device) -> TrialResult:
    routes: set[str] = set()
    verdicts: dict[Need, str] = {}
    worst, problem = 0.0, ""
    try:
        for level in _follow(trial, device):
            routes |= level.routes
            worst = max(worst, level.error)
            for need in level.needs:
                verdicts[need] = verdicts.get(need) or level.problem
            if level.problem:
                problem = level.problem
                break
    except HightideError as error:
        problem = f"{trial.case.name}: {str(error).splitlines()[0]}"
    except Exception as error:  # a bug in hightide is a result too: the other trials still run
        problem = f"{trial.case.name}: {type(error).__name__}: {error}"
    return TrialResult(trial, frozenset(routes), worst, problem, verdicts)


def _follow(trial: Trial, device: Device) -> Iterator[LevelOutcome]:
    """The result of each level, from one session."""
    built = CaseGraph(trial.case, np.random.default_rng(7))
    gpu = GpuSession(built.graph, device, choices=dict(trial.choices))
    return follow_levels(built, gpu)


def follow_levels(built: CaseGraph, gpu: GpuSession) -> Iterator[LevelOutcome]:
    """The result at each level of a case, on memory that is NaN where a run has not written."""
    case = built.case
    cpu = CpuSession(built.graph, dtype="float64")
    for live in built.levels():
        inputs = built.arrays(live)
        gpu.poison()
        got_all, expected_all = gpu.run(inputs), cpu.run(inputs)
        plan = gpu.level(inputs)[1]
        routes = frozenset(step.dispatch.kernel.name for step in plan.steps)
        needs = frozenset(need for need in needs_of(plan) if need.op == case.op)
        for got, expected in zip(got_all, expected_all, strict=True):
            error, problem = compare(got, expected, case.tolerance)
            where = f"{case.name} at {_level(live)}: {problem}" if problem else ""
            yield LevelOutcome(routes, error, where, needs)


def compare(got: np.ndarray, expected: np.ndarray, tolerance: float) -> tuple[float, str]:
    """The largest error as a share of the expected values' range, and what is wrong, or ""."""
    if got.shape != expected.shape:
        return np.inf, f"the dims are {list(got.shape)}, not {list(expected.shape)}"
    if not got.size:
        return 0.0, ""
    if got.dtype.kind != "f":
        wrong = int(np.count_nonzero(got != expected))
        return (np.inf, f"{wrong} of {got.size} integers differ") if wrong else (0.0, "")
    with np.errstate(invalid="ignore"):
        error = float(np.abs(got - expected).max())
    if np.isnan(error):
        return np.inf, f"{int(np.isnan(got).sum())} of {got.size} values are NaN"
    share = error / max(float(np.abs(expected).max()), 1e-3)
    return share, f"error {share:.2e} of the range, over {tolerance:.0e}" if share > tolerance else ""


def _kernels(graph: CaseGraph, choices: Choices, forced: Mapping[str, str] = {}) -> set[Kernel]:
    """The kernels of a case at its levels; none if it cannot be planned so."""
    kernels: set[Kernel] = set()
    try:
        planner = forcing(Planner(graph.graph, choices=choices), forced)
        plans = [planner.plan_max(MaxElements())]
        specs = graph_inputs(graph.graph, None, None)
        for live in graph.levels():
            inputs = graph.arrays(live)
            plans.append(planner.plan([a.shape for a in inputs], InputElements(inputs, specs)))
    except HightideError:
        return kernels
    for plan in plans:
        kernels |= {step.dispatch.kernel for step in plan.steps}
    return kernels


def _level(live: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in live.items()) or "the max"
