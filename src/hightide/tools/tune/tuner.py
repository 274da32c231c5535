"""`hightide tune`: measures which routes are fastest on an adapter, and keeps the result.

For every choice between routes, the workloads whose dispatches depend on it run with each option in turns. The option
with the least time over all of them wins, if it beats the default by more than noise.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hightide.errors import HightideError
from hightide.gpu import measurements
from hightide.gpu.device import Adapter, Device
from hightide.graph.graph import Graph
from hightide.ops.choices import CHOICES, Choice, Choices
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Planner
from hightide.runtime.device_routes import TUNED, forcing
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.tune.workloads import Workload, workloads

ROUNDS = 5
TIE = 0.05  # an option must be faster than the default by this share
SAMPLE_SECONDS = 0.02  # at least, of the runs between two readings of the clock


@dataclass(frozen=True)
class Verdict:
    """A choice on an adapter: the option chosen, and each option's time as a share of the default's."""

    choice: str
    chosen: str
    default: str
    ratios: dict[str, float]  # geometric mean over the workloads
    workloads: dict[str, dict[str, float]]  # workload -> option -> seconds of a run

    @property
    def gain(self) -> float:
        """How many times faster than by default."""
        return 1 / self.ratios[self.chosen] if self.ratios else 1.0


Progress = Callable[[int, int], None]


def tune(
    device: Device,
    choices: Sequence[Choice] | None = None,
    over: Sequence[Workload] | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """Measure the options of every choice, with the best options of the choices before it."""
    choices = [c for c in (CHOICES.values() if choices is None else choices) if c.exact and not c.by_caller]
    loads = workloads() if over is None else over
    best: dict[str, str] = {}
    verdicts = []
    for number, choice in enumerate(choices):
        measured: dict[str, dict[str, float]] = {}
        for n, load in enumerate(loads):
            if progress is not None:
                progress(number * len(loads) + n, len(choices) * len(loads))
            graph, inputs = load.build(device.traits)
            options = different(graph, inputs, choice, Choices(device.traits, best))
            if len(options) > 1:
                measured[load.name] = measure(device, graph, inputs, choice, options, best)
        verdict = decide(choice, choice.default(device.traits), measured)
        best[choice.name] = verdict.chosen
        verdicts.append(verdict)
    return verdicts


def decide(choice: Choice, default: str, measured: Mapping[str, Mapping[str, float]]) -> Verdict:
    """The option that is fastest over all workloads; the default if that is no clear gain, or nothing was measured."""
    times = {name: dict(seconds) for name, seconds in measured.items()}
    options = [o for o in choice.options if times and all(o in seconds for seconds in times.values())]
    if default not in options:
        return Verdict(choice.name, default, default, {}, times)
    ratios = {
        option: math.exp(statistics.mean(math.log(seconds[option] / seconds[default]) for seconds in times.values()))
        for option in options
    }
    fastest = min(options, key=lambda option: ratios[option])
    chosen = fastest if ratios[fastest] < 1 - TIE else default
    return Verdict(choice.name, chosen, default, ratios, times)


def different(graph: Graph, inputs: Sequence[np.ndarray], choice: Choice, now: Choices) -> list[str]:
    """The options that can run here, the default first; only that one if they all dispatch the same."""
    default = choice.default(now.traits)
    possible = [default, *(o for o in choice.options if o != default and choice.possible(now.traits, o))]
    dispatches = {option: _dispatches(graph, inputs, now, choice.name, option) for option in possible}
    usual = dispatches[default]
    if usual is None or all(other == usual for other in dispatches.values() if other is not None):
        return [default]
    return [option for option in possible if dispatches[option] is not None]


def measure(
    device: Device,
    graph: Graph,
    inputs: Sequence[np.ndarray],
    choice: Choice,
    options: Sequence[str],
    best: Mapping[str, str],
) -> dict[str, float]:
    """Seconds of a run with each option: medians of turns, so that other load on the machine affects all alike."""
    # A software adapter's threads are this process's own: their CPU time is right on a busy machine too.
    clock = time.process_time if device.traits.software else time.perf_counter
    sessions: dict[str, GpuSession] = {}
    still = [False] * len(graph.inputs)  # there is only this level: kernels of others need not be compiled
    for option in options:
        try:
            session = GpuSession(graph, device, still, choices={**best, choice.name: option})
            session.run(inputs)  # makes its plan, and lets a driver that waits until then compile
            sessions[option] = session
        except HightideError:
            if option == choice.default(device.traits):
                raise
    samples: dict[str, list[float]] = {option: [] for option in sessions}
    start = clock()
    sessions[options[0]].run(inputs)
    runs = max(1, math.ceil(SAMPLE_SECONDS / max(clock() - start, 1e-6)))
    for turn in range(ROUNDS):
        for option in _turned(list(sessions), turn):
            start = clock()
            for _ in range(runs):
                sessions[option].run(inputs)
            samples[option].append((clock() - start) / runs)
    return {option: statistics.median(seconds) for option, seconds in samples.items()}


def known(adapter: Adapter) -> list[Verdict]:
    """What was measured on this adapter with this driver and version."""
    try:
        saved = measurements.load(TUNED)[measurements.adapter_key(adapter)]["verdicts"]
        verdicts = [Verdict(**verdict) for verdict in saved]
    except (KeyError, TypeError):  # none, or a damaged file
        return []
    return verdicts if all(map(_is_sound, verdicts)) else []


def _is_sound(verdict: Verdict) -> bool:
    """Whether what a file says is what `keep` would write."""
    tables = (verdict.ratios, *verdict.workloads.values()) if isinstance(verdict.workloads, dict) else (None,)
    return (
        all(isinstance(text, str) for text in (verdict.choice, verdict.chosen, verdict.default))
        and all(isinstance(table, dict) and all(_is_positive(n) for n in table.values()) for table in tables)
        and (not verdict.ratios or verdict.chosen in verdict.ratios)
    )


def _is_positive(number: object) -> bool:
    return isinstance(number, int | float) and 0 < number < float("inf")


def keep(device: Device, verdicts: Sequence[Verdict]) -> None:
    """Sessions on this device that are built from now on, in later processes too, take what was chosen."""
    chosen = {verdict.choice: verdict.chosen for verdict in verdicts}
    entry = {"chosen": chosen, "verdicts": [asdict(verdict) for verdict in verdicts]}
    measurements.save(TUNED, {**measurements.load(TUNED), measurements.adapter_key(device.adapter): entry})


def forget(adapter: Adapter) -> bool:
    """Back to the defaults; whether there was something to forget."""
    entries = measurements.load(TUNED)
    there = entries.pop(measurements.adapter_key(adapter), None) is not None
    if there:
        measurements.save(TUNED, entries)
    return there


def _dispatches(
    graph: Graph, inputs: Sequence[np.ndarray], now: Choices, name: str, option: str
) -> list[tuple[object, ...]] | None:
    """What the workload's run dispatches with an option; None if it cannot."""
    try:
        planner = forcing(Planner(graph, choices=now), {name: option})
        plan = planner.plan([a.shape for a in inputs], InputElements(list(inputs), graph_inputs(graph, None, None)))
    except HightideError:
        return None
    return [(step.dispatch.kernel, step.dispatch.groups, step.dispatch.params) for step in plan.steps]


def _turned(options: Sequence[str], turn: int) -> Iterator[str]:
    """Another one first each time."""
    for n in range(len(options)):
        yield options[(n + turn) % len(options)]
