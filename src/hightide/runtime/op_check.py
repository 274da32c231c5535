"""Checks of one op: a graph of it alone, whose answer is known, runs on a GPU and on the references."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hightide.errors import InputError
from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.graph.values import Dims, TensorValue
from hightide.ops.contract import IndexBound
from hightide.planning.levels import InputElements, check_run, graph_inputs
from hightide.planning.planner import Planner
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

POSITIONS = (5, 2, 1, 0)  # for a SymInt that shapes do not need: the first that the op allows
MOST_ELEMENTS = 1 << 30  # of an input, at the size that it has in the program: a damaged one may say anything
ROUNDED_APART = 0.05  # the share of integers that may differ by one: codes halfway between two


@dataclass(frozen=True)
class OpCheck:
    """A graph of one op call, and what it is given."""

    graph: Graph
    planner: Planner
    given: Mapping[int, np.ndarray]  # inputs by value; the others are random
    ranges: Mapping[int, tuple[float, float]]  # of random inputs
    tolerance: float

    def problem(self, device: Device) -> str:
        """What is wrong with the answer on this device, or "". Wrong is what is wrong with two sets of inputs."""
        choices = dict(self.planner.choices.chosen)
        with GpuSession(self.graph, device, [False] * len(self.graph.inputs), choices=choices) as gpu:
            for seed in (7, 8):
                problem = self._run(gpu, self.inputs(seed))
                if not problem:
                    return ""
        return problem

    def inputs(self, seed: int | None) -> list[np.ndarray]:
        """Inputs that the op allows; InputError if none are found. Without a seed they are only good to plan with: all
        elements are the same, and take no memory."""
        rng = None if seed is None else np.random.default_rng(seed)
        specs = graph_inputs(self.graph, [False] * len(self.graph.inputs), None)
        for position in POSITIONS:
            plan = None
            bounds: dict[int, IndexBound] = {}
            for _ in range(2):  # the first plan says which inputs are indices, and their bounds
                arrays = [self._input(id, rng, position, bounds.get(n)) for n, id in enumerate(self.graph.inputs)]
                env = InputElements(arrays, specs)
                try:
                    plan = self.planner.plan([array.shape for array in arrays], env)
                except InputError:
                    break
                bounds = {bound.position: bound for bound in plan.index_bounds}
            try:
                if plan is not None:
                    check_run(plan, arrays, specs, env)
                    return arrays
            except InputError:
                continue
        raise InputError("no inputs were found that the op allows")

    def _input(self, id: int, rng: np.random.Generator | None, position: int, bound: IndexBound | None) -> np.ndarray:
        if id in self.given:
            return self.given[id]
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        if id not in self.ranges:  # made for a SymInt
            return np.full(value.dims, position, value.dtype)
        low, high = (max(bound.low, -9), bound.high) if bound else self.ranges[id]
        if rng is None:
            if math.prod(value.dims) > MOST_ELEMENTS:
                raise InputError(f"an input of {list(value.dims)} is too large for a check")
            return np.broadcast_to(random_array(np.random.default_rng(7), (), value.dtype, low, high), value.dims)
        return random_array(rng, value.dims, value.dtype, low, high)

    def _run(self, gpu: GpuSession, inputs: list[np.ndarray]) -> str:
        cpu = CpuSession(self.graph, [False] * len(inputs), dtype="float64")
        gpu.reset()
        gpu.poison()
        got = [*gpu.run(inputs), *gpu.read_state()]
        expected = [*cpu.run(inputs), *cpu.read_state()]
        problems = (lenient_problem(g, e, self.tolerance) for g, e in zip(got, expected, strict=True))
        return next(filter(None, problems), "")


def random_array(rng: np.random.Generator, dims: Dims, dtype: str, low: float, high: float) -> np.ndarray:
    """Between `low` and `high`, both included for integers."""
    if dtype == "bool":
        return rng.integers(0, 2, dims).astype(bool)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(max(int(low), limits.min), min(int(high), limits.max) + 1, dims).astype(dtype)
    return rng.uniform(low, high, dims).astype(dtype)


def lenient_problem(got: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    """What is wrong beyond doubt, or "": where the reference is not finite, anything is right."""
    if got.shape != expected.shape:
        return f"the dims are {list(got.shape)}, not {list(expected.shape)}"
    if got.dtype.kind != "f":
        apart = np.abs(got.astype(np.int64) - expected.astype(np.int64))
        wrong = int(np.count_nonzero(apart))
        if got.dtype.kind != "b" and apart.max(initial=0) <= 1 and wrong <= ROUNDED_APART * got.size:
            return ""
        return f"{wrong} of {got.size} integers differ" if wrong else ""
    finite = np.isfinite(expected)
    if not finite.any():
        return ""
    if lost := int(np.count_nonzero(~np.isfinite(got[finite]))):
        return f"{lost} of {got.size} values are not finite"
    error = float(np.abs(got[finite].astype(np.float64) - expected[finite]).max())
    share = error / max(float(np.abs(expected[finite]).max()), 1e-3)
    return f"error {share:.2e} of the range, over {tolerance:.0e}" if share > tolerance else ""
