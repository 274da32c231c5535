"""How long a dispatch takes on a GPU, from its machine code and from what its plan has to move and multiply.

A dispatch takes as long as the slowest of what it needs: its memory, the instructions that its SIMDs start, its caches,
its shared memory, or waiting for loads with as many waves as fit at a time (Little's law); and then some time until the
next one can begin. How often the main loop turns is what the plan's multiply-adds need, or else its bytes. These are
predictions: caches that hit, clocks that drop and drivers that schedule otherwise are not in them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hightide.ops.cost import Cost
from hightide.tools.kernels.machine_code import InstructionCounts, Loop, MachineCode
from hightide.tools.kernels.target_gpus import TargetGpu

SLOW_CYCLES = 4  # of an exponential, a root, a reciprocal
UNKNOWN_TURNS = 8.0  # of an inner loop whose code does not say
BOUNDS = ("memory", "arithmetic", "cache", "shared memory", "latency")


@dataclass(frozen=True)
class DispatchTime:
    """Microseconds, by what bounds it."""

    memory: float
    arithmetic: float
    cache: float
    shared: float
    latency: float
    dispatch: float

    @property
    def parts(self) -> tuple[float, ...]:
        return self.memory, self.arithmetic, self.cache, self.shared, self.latency

    @property
    def busy(self) -> float:
        return max(self.parts)

    @property
    def total(self) -> float:
        return self.busy + self.dispatch

    @property
    def bound(self) -> str:
        """What takes longest."""
        return "dispatch" if self.dispatch > self.busy else BOUNDS[self.parts.index(self.busy)]


def predict(code: MachineCode, gpu: TargetGpu, groups: int, cost: Cost) -> DispatchTime:
    """A dispatch of so many workgroups."""
    waves = groups * -(-code.lanes // code.wave)
    if not waves:
        return DispatchTime(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    run = executed(code, cost, waves * code.wave)
    clocks = gpu.clock * 1e3  # a microsecond
    passes = code.wave // gpu.simd_lanes  # clocks that an instruction takes for all lanes of a wave
    vector = run.kinds.get("fma", 0) + run.kinds.get("valu", 0) + SLOW_CYCLES * run.kinds.get("slow", 0)
    scalar = run.kinds.get("scalar", 0) + run.kinds.get("branch", 0)
    units = min(gpu.units, groups)
    simds = min(units * gpu.simds, waves)
    resident = min(waves, gpu.units * gpu.simds * max(1, code.waves))
    return DispatchTime(
        memory=cost.bytes / (gpu.bandwidth * 1e3),
        arithmetic=waves * max(vector * passes, scalar) / (simds * clocks),
        cache=waves * code.wave * run.loaded / (units * gpu.cache_bytes * clocks),
        shared=waves * code.wave * run.shared / (units * gpu.shared_bytes * clocks),
        latency=-(-waves // resident) * (1 + run.stalls) * _latency(gpu, run.loaded * waves * code.wave, cost),
        dispatch=gpu.dispatch,
    )


def executed(code: MachineCode, cost: Cost, lanes: int) -> InstructionCounts:
    """What one wave runs, all turns of its loops counted."""
    run, main = InstructionCounts(), code.main_loop
    run.add(code.outside)
    turns = UNKNOWN_TURNS if main is None else _main_turns(main, cost, lanes)
    for loop in code.loops:
        _add(run, loop, turns if main in loop.innermost else loop.turns or turns)
    return run


def _latency(gpu: TargetGpu, loaded: float, cost: Cost) -> float:
    """Of an average load: what has to come from memory does so once, and is then in a cache."""
    first = min(1.0, cost.bytes_read / loaded) if loaded else 1.0
    return first * gpu.latency + (1 - first) * gpu.cache_latency


def _main_turns(main: Loop, cost: Cost, lanes: int) -> float:
    """As many as the plan's multiply-adds take, or else its bytes."""
    if main.own.products:
        return max(1.0, cost.flops / 2 / main.own.products / lanes)
    return max(1.0, cost.bytes_read / main.own.loaded / lanes) if main.own.loaded else UNKNOWN_TURNS


def _add(run: InstructionCounts, loop: Loop, turns: float) -> None:
    """`turns` are those of an innermost loop; one around it turns as often as the code says, or as is guessed."""
    if not loop.inner:
        run.add(loop.own, turns)
        return
    for inner in loop.inner:
        _add(run, inner, turns)
    run.add(loop.own, max(1.0, turns / (loop.inner[0].turns or UNKNOWN_TURNS)))
