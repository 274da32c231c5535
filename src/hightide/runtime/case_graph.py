"""An op case as a graph of one op, and its inputs at any level."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.graph.blob import Blob
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.ops.case import CONTEXT, MAX, Blocks, Case, Const, In, Pos, Size

# The live dims that every case goes through; a letter that is not there is at its max.
LEVELS: list[dict[str, int]] = [
    {},
    {"S": 1, "T": 1, "B": 1, "P": 0},
    {"S": 7, "T": 3, "B": 2, "P": 13},
    {"S": 1, "P": 40},
    {"S": 2, "T": 9, "B": 1, "P": 5},
    {"S": 4, "P": 1},
    {"S": 17, "T": 1, "P": 33},
    {},
    {"S": 1, "T": 5, "B": 3, "P": 63},
]
EMPTY_LEVELS: list[dict[str, int]] = [{"S": 0, "T": 1}, {"S": 5}]
# Arguments of these ops that come after this many only lend a live dim to a `Size`.
_ARITY = {
    "aten.expand_copy.default": 2,
    "aten.full.default": 2,
    "aten.ones.default": 1,
    "aten.zeros.default": 1,
    "aten.arange.start_step": 3,
}


class CaseGraph:
    """A case as a graph, with what its inputs are."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.case = case
        self.builder, self.rng = GraphBuilder(), rng
        self.inputs: list[In] = []
        self.shared: dict[str, Any] = {}
        self.position: TensorValue | None = None
        built = [None if _is_symbolic(arg) else self._argument(arg) for arg in case.args]
        built = [
            self._symbolic(arg, built) if b is None and arg is not None else b
            for arg, b in zip(case.args, built, strict=True)
        ]
        arity = len(built) - sum(isinstance(arg, In) and arg in _only_sizes(case) for arg in case.args)
        out = self.builder.call(case.op, *built[:arity], dtype=case.out, dims=case.dims)
        outputs = out if isinstance(out, tuple) else (out,)
        if "output" in case.extra:  # an op whose effect is on an argument: look at that, through a later op
            outputs = (self.builder.call("aten.neg.default", built[case.extra["output"]]),)
        self.graph: Graph = self.builder.graph(*outputs)

    def levels(self) -> list[dict[str, int]]:
        return [*LEVELS, *EMPTY_LEVELS] if self.case.empty else LEVELS

    def arrays(self, live: dict[str, int]) -> list[np.ndarray]:
        """Random inputs with these live dims."""
        sizes = {**MAX, **live}
        sizes["P"] = min(sizes["P"], CONTEXT - sizes["S"])
        arrays = []
        for spec in self.inputs:
            if spec.dims == ("P",):
                arrays.append(np.array([sizes["P"]], np.int32))
                continue
            if spec.make is not None:
                arrays.append(spec.make(self.rng, sizes))
                continue
            dims = tuple(sizes[d] if isinstance(d, str) else d for d in spec.dims)
            if spec.dtype == "bool":
                arrays.append(self.rng.integers(0, 2, dims).astype(bool))
            elif spec.dtype.startswith("int"):
                arrays.append(self.rng.integers(int(spec.low), int(spec.high) + 1, dims).astype(spec.dtype))
            else:
                arrays.append(self.rng.uniform(spec.low, spec.high, dims).astype(spec.dtype))
        return arrays

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, list):
            return [self._argument(a) for a in arg]
        if isinstance(arg, In):
            self.inputs.append(arg)
            return self.builder.input([MAX[d] if isinstance(d, str) else d for d in arg.dims], arg.dtype)
        if isinstance(arg, Const):
            return self.builder.constant(arg.make(self.rng))
        if isinstance(arg, Blocks):
            data = arg.make(self.rng)
            return self.builder.stored(arg.dims, arg.kind, Blob(data, 0, len(data)))
        return arg

    def _symbolic(self, arg: Any, built: list[Any]) -> Any:
        if isinstance(arg, list):
            return [self._symbolic(a, built) if isinstance(a, Size | Pos) else a for a in arg]
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


def _is_symbolic(arg: Any) -> bool:
    if isinstance(arg, list):
        return any(isinstance(a, Size | Pos) for a in arg)
    return isinstance(arg, Size | Pos)


def _only_sizes(case: Case) -> set[In]:
    """Inputs at the end of the list that only lend a live dim to a Size."""
    lists = [arg for arg in case.args if isinstance(arg, list)]
    sizes = {a.arg for arg in (case.args, *lists) for a in arg if isinstance(a, Size)}
    needed = _ARITY.get(case.op, 99)
    return {arg for n, arg in enumerate(case.args) if n in sizes and n >= needed}
