"""A plan: for one level, the flat list of dispatches with their grids and parameters.

`Planner.plan` is the one pass in which live dims and SymInts go forward, in op order, and in which
every op turns them into dispatches. It is pure: no GPU, no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import gt
from typing import Any, NamedTuple

from hightide.errors import FOREIGN, HightideError, InputError, ProgramError, UnsupportedError, describe
from hightide.graph.aliases import check_order
from hightide.graph.graph import Graph, OpCall, output_ids
from hightide.graph.symbols import Env, Sym, SymExpr, element
from hightide.graph.values import Dims, ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.notebook import table
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.binding import graph_aliases
from hightide.ops.choices import Choices
from hightide.ops.contract import Bound, Context, IndexBound, Op, SymIntOp, has_kernel
from hightide.ops.kernel import Dispatch, LiveInt, Scratch, Tensor
from hightide.units import counted


class Step(NamedTuple):
    """A dispatch and the op call it belongs to, as a call and with its live arguments."""

    call: OpCall
    dispatch: Dispatch
    op: Op


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    dims: dict[int, Dims]  # live dims of every tensor value
    symints: dict[int, SymExpr]  # of every SymInt value
    bounds: tuple[Bound, ...]  # checked at each run
    index_bounds: tuple[IndexBound, ...]  # checked at each run
    pins: dict[Sym, int]  # the input-dependent integers that some shape was made from
    scratch_sizes: dict[Scratch, int]

    def __repr__(self) -> str:
        kernels = len({step.dispatch.kernel for step in self.steps})
        pinned = "".join(f", {expr} = {value}" for expr, value in self.pins.items())
        return f"<Plan: {counted(len(self.steps), 'dispatch')} of {counted(kernels, 'kernel')}{pinned}>"

    def __str__(self) -> str:
        return "\n".join([repr(self), *("  ".join(line) for line in self._lines())])

    def _repr_html_(self) -> str:
        head = ("op", "name", "route", "workgroups", "writes")
        return table(repr(self).strip("<>"), head, self._lines(), right=(0, 3))

    def _lines(self) -> Iterator[tuple[str, ...]]:
        for step in self.steps:
            written = " ".join(str(list(w.dims)) if isinstance(w, Tensor) else "scratch" for w in step.dispatch.writes)
            groups = str(step.dispatch.groups)
            yield str(step.call.index), step.call.name, step.dispatch.kernel.name, groups, written


class Planner:
    """Plans one graph at any level. With `dispatch` off it only checks and sizes, for the NumPy references."""

    def __init__(
        self, graph: Graph, *, dispatch: bool = True, scratch_limit: int = 128 << 20, choices: Choices | None = None
    ) -> None:
        check_order(graph)
        self.graph = graph
        self.ops = resolve_ops(graph, dispatch)
        self.dispatch = dispatch
        self.scratch_limit = scratch_limit
        self.choices = choices or Choices()
        self.aliases = graph_aliases(graph)
        symints = [v.id for v in graph.values if isinstance(v, SymIntValue)]
        self.slots = {id: slot for slot, id in enumerate(symints)}
        inputs = {id: position for position, id in enumerate(graph.inputs)}
        self.input_positions = {id: inputs[root] for id, root in self.aliases.root.items() if root in inputs}
        self._initial = [_initial(value) for value in graph.values]
        calls = zip(graph.calls, self.ops, strict=True)
        self._work = [self._look_up(call, op, dispatch and call.index not in self.aliases.views) for call, op in calls]

    def _look_up(self, call: OpCall, op: type[Op], dispatches: bool) -> _Work:
        declared = {argument.name: argument for argument in arguments_of(op)}
        fixed: dict[str, Any] = {}
        live: list[tuple[str, int | tuple[int, ...]]] = []
        for name, id in call.args.items():
            value = self.graph.values[id]
            if isinstance(value, LiteralValue):
                fixed[name] = declared[name].converted(value.value)
            elif isinstance(value, ListValue):
                live.append((name, value.items))
            elif (known := self._initial[id]) is not None:
                fixed[name] = known
            else:
                live.append((name, id))
        outs = (self.graph.values[id] for id in output_ids(self.graph, call))
        many = isinstance(self.graph.values[call.out], ListValue)
        tensors = tuple(out for out in outs if isinstance(out, TensorValue))
        return _Work(call, op, fixed, tuple(live), tensors, many, dispatches)

    def plan(self, input_dims: Sequence[Dims], env: Env) -> Plan:
        """The plan for inputs of these live dims (a SymInt has none: ()); `env` gives the elements shapes ask for."""
        return self._pass(input_dims, env, at_max=False)

    def plan_max(self, env: Env) -> Plan:
        """The plan at the max dims: what buffers and scratch are sized for."""
        inputs = (self.graph.values[id] for id in self.graph.inputs)
        return self._pass([v.dims if isinstance(v, TensorValue) else () for v in inputs], env, at_max=True)

    def _pass(self, input_dims: Sequence[Dims], env: Env, at_max: bool) -> Plan:
        ctx = Context(env, self.input_positions, self.scratch_limit, self.choices)
        live = self._initial.copy()  # what each value is at this level, by id
        for position, (id, dims) in enumerate(zip(self.graph.inputs, input_dims, strict=True)):
            value = self.graph.values[id]
            if isinstance(value, TensorValue):
                live[id] = Tensor(value, dims)
            else:
                live[id] = LiveInt(element(position, 0), self.slots[id])
        steps: list[Step] = []
        for work in self._work:
            call = work.call
            ctx.call = call.index
            arguments = work.fixed.copy()
            for name, at in work.live:
                arguments[name] = live[at] if isinstance(at, int) else tuple([live[id] for id in at])
            op = work.op.bound(arguments)
            refusal: InputError | None = None
            try:
                if isinstance(op, SymIntOp):
                    live[call.out] = LiveInt(op.symint(ctx), self.slots[call.out])
                    continue
                outs, refusal = _outputs(work, op, ctx, at_max)
                for tensor in outs:
                    live[tensor.value.id] = tensor
                if not work.dispatches:
                    continue
                for dispatch in op.plan(ctx, outs if work.many else outs[0]):
                    if at_max:
                        dispatch.check_types()
                    if isinstance(dispatch.groups, Sym) or dispatch.groups > 0:
                        steps.append(Step(call, dispatch, op))
            except HightideError as error:
                raise type(error)(f"{call}: {error}") from None
            except FOREIGN as error:
                if refusal is not None:
                    raise InputError(f"{call}: {refusal}") from None
                raise ProgramError(f"{call}: its arguments do not fit each other ({describe(error)})") from error
        return Plan(
            steps=tuple(steps),
            dims={t.value.id: t.dims for t in live if isinstance(t, Tensor)},
            symints={id: live[id].expr for id in self.slots if live[id] is not None},
            bounds=tuple(ctx.bounds),
            index_bounds=tuple(ctx.index_bounds),
            pins=ctx.pins,
            scratch_sizes=ctx.scratch_sizes,
        )


@dataclass(frozen=True)
class _Work:
    """An op call with its arguments and outputs looked up once."""

    call: OpCall
    op: type[Op]
    fixed: dict[str, Any]  # the arguments that are the same at every level
    live: tuple[tuple[str, int | tuple[int, ...]], ...]  # the others: value ids, a list's items as a tuple
    outs: tuple[TensorValue, ...]
    many: bool  # the output is a list
    dispatches: bool


def _initial(value: Value) -> Any:
    match value:
        case TensorValue() if value.constant is not None:
            return Tensor(value, value.dims)
        case LiteralValue(value=literal):
            return literal
        case _:
            return None


def _outputs(work: _Work, op: Op, ctx: Context, at_max: bool) -> tuple[tuple[Tensor, ...], InputError | None]:
    """The call's outputs at their live dims, which must be within the max; at the max they are just that.

    The second is why they cannot be, where that is let pass.
    """
    try:
        dims = op.outputs(ctx)
        if len(dims) != len(work.outs):
            raise UnsupportedError(f"the program expects {counted(len(work.outs), 'output')}, the op gives {len(dims)}")
        return tuple([_within(value, got, at_max) for got, value in zip(dims, work.outs, strict=True)]), None
    except InputError as error:
        if not (at_max and ctx.pins):  # the max of an input's value is unknown, so shapes may not fit each other
            raise
        return tuple(Tensor(value, value.dims) for value in work.outs), error


def _within(value: TensorValue, got: Dims, at_max: bool) -> Tensor:
    most = value.dims
    if got != most and (len(got) != len(most) or any(map(gt, got, most)) or min(got) < 0):
        raise InputError(f"the output would be {list(got)}, over its max dims {list(most)}")
    return Tensor(value, most if at_max else got)


def resolve_ops(graph: Graph, dispatch: bool = True) -> list[type[Op]]:
    """The op of every call, or one error that lists all that are missing."""
    if missing := missing_ops(graph, dispatch):
        are = "is" if len(missing) == 1 else "are"
        listed = "; ".join(missing)
        raise UnsupportedError(f"{counted(len(missing), 'op')} of this program {are} not supported: {listed}")
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
