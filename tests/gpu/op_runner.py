"""Runs a row of op_cases.py: builds its graph, and takes it through the levels against the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_cases import CONTEXT, MAX, Case, Const, In, Pos, Size

from hightide.gpu.device import Device
from hightide.graph.builder import GraphBuilder
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.reference import CpuSession
from hightide.session import GpuSession

LEVELS = [
    {},  # everything at its max
    {"S": 1, "T": 1, "B": 1, "P": 0},
    {"S": 7, "T": 3, "B": 2, "P": 13},
    {"S": 1, "P": 40},
    {"S": 2, "T": 9, "B": 1, "P": 5},
    {"S": 4, "P": 1},
    {"S": 17, "T": 1, "P": 33},
    {},
    {"S": 1, "T": 5, "B": 3, "P": 63},
]


class Built:
    """A case as a graph, with what its inputs are."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.builder, self.inputs, self.rng = GraphBuilder(), [], rng
        self.shared: dict[Any, Any] = {}
        self.position: TensorValue | None = None
        flat = list(case.args)
        built = [None if isinstance(a, Pos | Size) or _has_size(a) else self.argument(a) for a in flat]
        built = [
            self.symbolic(a, built) if b is None and a is not None else b for a, b in zip(flat, built, strict=True)
        ]
        arity = len(built) - sum(isinstance(a, In) and a in self._only_sizes(case) for a in flat)
        out = self.builder.call(case.op, *built[:arity], dtype=case.out, dims=case.dims)
        outputs = out if isinstance(out, tuple) else (out,)
        if "output" in case.extra:  # an op whose effect is on an argument: look at that, through a later op
            outputs = (self.builder.call("aten.neg.default", built[case.extra["output"]]),)
        self.graph: Graph = self.builder.graph(*outputs)

    def _only_sizes(self, case: Case) -> set[In]:
        """Inputs at the end of the list that only lend a live dim to a Size."""
        sizes = {a.arg for a in case.args if isinstance(a, Size)} | {
            i.arg for a in case.args if isinstance(a, list) for i in a if isinstance(i, Size)
        }
        needed = {"aten.expand_copy.default": 2, "aten.full.default": 2, "aten.arange.start_step": 3}.get(case.op, 99)
        return {a for n, a in enumerate(case.args) if n in sizes and n >= needed}

    def argument(self, arg: Any) -> Any:
        if isinstance(arg, list):
            return [self.argument(a) for a in arg]
        if isinstance(arg, In):
            value = self.builder.input([MAX.get(d, d) for d in arg.dims], arg.dtype)  # type: ignore[arg-type]
            self.inputs.append(arg)
            return value
        if isinstance(arg, Const):
            return self.builder.constant(arg.make(self.rng))
        return arg

    def symbolic(self, arg: Any, built: list[Any]) -> Any:
        if isinstance(arg, list):
            return [self.symbolic(a, built) if isinstance(a, Size | Pos) else a for a in arg]
        if isinstance(arg, Size):
            return self.builder.call("sym_size.int", built[arg.arg], arg.dim)
        if self.position is None:
            self.position = self.builder.input((1,), "int32")
            self.inputs.append(In(("P",)))
        position = self.builder.call("et_vk.select_as_symint.default", self.position, 0, -1)
        if not arg.plus:
            return position
        if "length" not in self.shared:
            self.shared["length"] = self.builder.input((MAX[arg.plus],))
            self.inputs.append(In((arg.plus,)))
        return self.builder.call("add", position, self.builder.call("sym_size.int", self.shared["length"], 0))

    def arrays(self, live: dict[str, int]) -> list[np.ndarray]:
        sizes = {**MAX, **live}
        arrays = []
        for spec in self.inputs:
            if spec.dims == ("P",):
                arrays.append(np.array([min(sizes["P"], CONTEXT - sizes["S"])], np.int32))
                continue
            dims = tuple(sizes[d] if isinstance(d, str) else d for d in spec.dims)
            if spec.dtype == "bool":
                arrays.append(self.rng.integers(0, 2, dims).astype(bool))
            elif spec.dtype.startswith("int"):
                arrays.append(self.rng.integers(int(spec.low), int(spec.high) + 1, dims).astype(spec.dtype))
            else:
                arrays.append(self.rng.uniform(spec.low, spec.high, dims).astype(np.float32))
        return arrays


def _has_size(arg: Any) -> bool:
    return isinstance(arg, list) and any(isinstance(a, Size | Pos) for a in arg)


def check(got: np.ndarray, expected: np.ndarray, tolerance: float, where: str) -> None:
    assert got.shape == expected.shape, where
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected, err_msg=where)
    elif got.size:
        error = np.abs(got - expected).max()
        reach = max(float(np.abs(expected).max()), 1e-3)
        assert error <= tolerance * reach, f"{where}: error {error / reach:.2e} of the range"


def follow_levels(case: Case, device: Device) -> None:
    """One session at every level, on memory that is NaN where a run has not written."""
    built = Built(case, np.random.default_rng(7))
    gpu, cpu = GpuSession(built.graph, device), CpuSession(built.graph, dtype="float64")
    levels = [*LEVELS, {"S": 0, "T": 1}, {"S": 5}] if case.empty else LEVELS
    for live in levels:
        inputs = built.arrays(live)
        gpu.poison()
        where = f"{case.name} at {live}"
        for got, expected in zip(gpu.run(inputs), cpu.run(inputs), strict=True):
            check(got, expected, case.tolerance, where)


def check_blank_parameters(session: GpuSession, inputs: list[np.ndarray]) -> None:
    """With parameters of zeros no kernel writes anything: that is how encoded commands are got rid of."""
    session.run(inputs)
    session.poison()
    _, ready, _ = session._ready(inputs)
    before = _contents(session)
    session._recorder._discard(session._recorder._encode(ready.recording))
    assert _contents(session) == before


def _contents(session: GpuSession) -> list[bytes]:
    read = session.device.wgpu.queue.read_buffer
    return [bytes(read(buffer)) for buffer in (*session._shared, *session._own.values())]
