"""A plan: for one level, the flat list of dispatches with their grids and parameters.

`Planner.plan` is the one pass in which live dims and SymInts go forward, in op order, and in which
every op turns them into dispatches. It is pure: no GPU, no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hightide.errors import HightideError, InputError, UnsupportedError
from hightide.graph.aliases import check_order, find_aliases, output_ids
from hightide.graph.graph import Graph, OpCall
from hightide.graph.symbols import Env, Sym, SymExpr, element
from hightide.graph.values import Dims, ListValue, LiteralValue, SymIntValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.contract import (
    Bound,
    Context,
    Dispatch,
    IndexBound,
    LiveInt,
    Op,
    Scratch,
    SymIntOp,
    Tensor,
)

GROUPS_PER_DIM = 65_535  # WebGPU's guaranteed maxComputeWorkgroupsPerDimension


@dataclass(frozen=True)
class Step:
    """A dispatch and the op call it belongs to."""

    call: OpCall
    dispatch: Dispatch


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    dims: dict[int, Dims]  # live dims of every tensor value
    symints: dict[int, SymExpr]  # of every SymInt value
    bounds: tuple[Bound, ...]  # checked at each run
    index_bounds: tuple[IndexBound, ...]  # checked at each run
    pins: dict[Sym, int]  # the input-dependent integers that some shape was made from
    scratch_sizes: dict[Scratch, int]


class Planner:
    """Plans one graph at any level. With `dispatch` off it only checks and sizes, for the NumPy references."""

    def __init__(self, graph: Graph, *, dispatch: bool = True, scratch_limit: int = 128 << 20) -> None:
        check_order(graph)
        self.graph = graph
        self.ops = resolve_ops(graph, dispatch)
        self.dispatch = dispatch
        self.scratch_limit = scratch_limit
        calls = list(zip(graph.calls, self.ops, strict=True))
        self.aliases = find_aliases(
            graph,
            view_calls={call.index for call, op in calls if op.view},
            written={call.args[n] for call, op in calls for n in op.mutates},
        )
        symints = [v.id for v in graph.values if isinstance(v, SymIntValue)]
        self.slots = {id: slot for slot, id in enumerate(symints)}
        inputs = {id: position for position, id in enumerate(graph.inputs)}
        self.input_positions = {id: inputs[root] for id, root in self.aliases.root.items() if root in inputs}

    def plan(self, input_dims: Sequence[Dims], env: Env) -> Plan:
        """The plan for inputs of these live dims (a SymInt has none: ()); `env` gives the elements shapes ask for."""
        return self._pass(dict(zip(self.graph.inputs, input_dims, strict=True)), env, at_max=False)

    def plan_max(self, env: Env) -> Plan:
        """The plan at the max dims: what buffers and scratch are sized for."""
        values = self.graph.values
        inputs = (values[id] for id in self.graph.inputs)
        return self._pass({v.id: v.dims if isinstance(v, TensorValue) else () for v in inputs}, env, at_max=True)

    def _pass(self, dims: dict[int, Dims], env: Env, at_max: bool) -> Plan:
        ctx = Context(env, self.input_positions, self.scratch_limit)
        symints: dict[int, SymExpr] = {
            id: element(position, 0) for position, id in enumerate(self.graph.inputs) if id in self.slots
        }
        dims = {id: live for id, live in dims.items() if id not in self.slots}
        steps: list[Step] = []
        for call, op in zip(self.graph.calls, self.ops, strict=True):
            ctx.call = call.index
            try:
                *args, out = (self._argument(id, dims, symints) for id in call.args)
                if isinstance(op, SymIntOp):
                    symints[call.args[-1]] = op.symint(ctx, *args)
                    continue
                dims.update(self._output_dims(call, op, ctx, args, at_max))
                out = self._argument(call.args[-1], dims, symints)
                if not self.dispatch or call.index in self.aliases.views:
                    continue
                for dispatch in op.plan(ctx, *args, out=out):
                    if isinstance(dispatch.groups, Sym) or dispatch.groups > 0:
                        fold(dispatch.groups if isinstance(dispatch.groups, int) else 1)
                        steps.append(Step(call, dispatch))
            except HightideError as error:
                raise type(error)(f"{call}: {error}") from None
            except ZeroDivisionError:
                raise InputError(f"{call}: a SymInt is divided by zero") from None
        return Plan(
            steps=tuple(steps),
            dims=dims,
            symints=symints,
            bounds=tuple(ctx.bounds),
            index_bounds=tuple(ctx.index_bounds),
            pins=ctx.pins,
            scratch_sizes=ctx.scratch_sizes,
        )

    def _tensor_value(self, id: int) -> TensorValue:
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        return value

    def _argument(self, id: int, dims: dict[int, Dims], symints: dict[int, SymExpr]) -> Any:
        match self.graph.values[id]:
            case TensorValue() as value:
                return Tensor(value, dims.get(id, value.dims))
            case SymIntValue():
                return LiveInt(symints.get(id, 0), self.slots[id])
            case LiteralValue(value=literal):
                return literal
            case ListValue(items=items):
                return tuple(self._argument(item, dims, symints) for item in items)

    def _output_dims(self, call: OpCall, op: Op, ctx: Context, args: list[Any], at_max: bool) -> dict[int, Dims]:
        ids = output_ids(self.graph, call)
        try:
            live = op.outputs(ctx, *args)
        except InputError:
            if not (at_max and ctx.pins):  # the max of an input's value is unknown, so shapes may not fit each other
                raise
            return {id: self._tensor_value(id).dims for id in ids}
        if len(ids) != len(live):
            raise UnsupportedError(f"the program expects {len(ids)} outputs, the op gives {len(live)}")
        result = {}
        for id, got in zip(ids, live, strict=True):
            most = self._tensor_value(id).dims
            if len(got) != len(most) or any(g < 0 or g > m for g, m in zip(got, most, strict=True)):
                raise InputError(f"the output would be {list(got)}, over its max dims {list(most)}")
            result[id] = most if at_max else got
        return result


def fold(groups: int) -> tuple[int, int]:
    """Workgroups as (x, y): a count past one dimension's limit spreads over two; kernels rejoin them."""
    if groups <= GROUPS_PER_DIM:
        return groups, 1
    y = -(-groups // GROUPS_PER_DIM)
    if y > GROUPS_PER_DIM:
        raise InputError(f"{groups} workgroups are more than a WebGPU dispatch can have")
    return -(-groups // y), y


def resolve_ops(graph: Graph, dispatch: bool = True) -> list[Op]:
    """The op of every call, or one error that lists all that are missing."""
    if missing := missing_ops(graph, dispatch):
        raise UnsupportedError(f"{len(missing)} ops of this program are not supported: {'; '.join(missing)}")
    return [REGISTRY[call.name] for call in graph.calls]


def missing_ops(graph: Graph, dispatch: bool) -> list[str]:
    """The ops that hightide lacks, each with its places; with `dispatch`, also those that have no GPU kernel."""
    missing: dict[str, list[int]] = {}
    for call in graph.calls:
        if call.name not in REGISTRY:
            missing.setdefault(call.name, []).append(call.index)
        elif dispatch and not has_kernel(REGISTRY[call.name]):
            missing.setdefault(f"{call.name}, which has a reference but no GPU kernel", []).append(call.index)
    return [f"{name} (op {', '.join(map(str, at))})" for name, at in missing.items()]


def has_kernel(op: Op) -> bool:
    return isinstance(op, SymIntOp) or type(op).plan is not Op.plan
