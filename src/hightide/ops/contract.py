"""What an op is: its arguments, its output dims, its dispatches and its meaning, declared in one class.

    @op("et_vk.rms_norm.default", family="norm")
    class RmsNorm(Op):
        x: Tensor
        weight: Tensor
        eps: float = 1e-6

* the annotated fields are the arguments, in the order that exporters write them, with their defaults;
* `outputs`   checks the live arguments and says the live dims of the outputs, exactly;
* `plan`      live dims -> dispatches (route, grid, parameters). The same method runs at the max dims when a session
              is built and at the live dims of every new level;
* `reference` what it means, in NumPy: a static method whose parameters are those arguments that it needs, by name.

An instance is one call at one level: tensors are `Tensor` (a value with its live dims), SymInts `LiveInt`, literals
Python objects, lists tuples. A reference gets arrays and plain ints. Ops on SymInts give `symint` instead of `outputs`
and `plan`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.symbols import Env, Sym, SymExpr, evaluate
from hightide.graph.values import Dims
from hightide.ops.arguments import REQUIRED, arguments_of
from hightide.ops.choices import Choice, Choices
from hightide.ops.cost import Cost, distinct, largest, same, share_of
from hightide.ops.kernel import Dispatch, Int, Kernel, LiveInt, Scratch, Tensor, kernel
from hightide.ops.storage import GPU_TYPE

# How far an op's result may be off, of the largest value in its row.
MOVED = 0.0  # the same bits
ROUNDED = 2e-6  # a few roundings
FUNCTION = 1e-5  # exp, tanh, sin …: WGSL allows adapters some freedom
SUMMED = 2e-5  # sums of many products, in any order


@dataclass(frozen=True)
class Family:
    """What the ops of a kind have in common; an op may say otherwise."""

    tolerance: float
    flops_per_element: float = 1  # of the largest tensor that is not a weight


FAMILIES = {
    "views": Family(MOVED, 0),
    "symints": Family(MOVED, 0),
    "elementwise": Family(FUNCTION),
    "movement": Family(MOVED, 0),
    "gather": Family(MOVED, 0),
    "norm": Family(FUNCTION, 4),
    "linear": Family(SUMMED),
    "experts": Family(SUMMED),
    "matmul": Family(SUMMED),
    "conv": Family(SUMMED, 2),
    "pool": Family(ROUNDED),
    "resample": Family(FUNCTION, 8),
    "quantize": Family(SUMMED, 4),
    "training": Family(SUMMED),
    "embedding": Family(ROUNDED, 0),
    "rotary": Family(FUNCTION, 3),
    "attention": Family(SUMMED),
    "short_conv": Family(SUMMED),
    "delta_rule": Family(SUMMED),
    "sampling": Family(MOVED),
    "softmax": Family(FUNCTION, 5),
    "fill": Family(ROUNDED, 0),
    "reduce": Family(FUNCTION),
    "scan": Family(SUMMED),
    "sort": Family(MOVED, 10),
    "scatter": Family(SUMMED),
    "portable": Family(SUMMED),
}
CACHING = ("attention", "short_conv")  # families whose state are caches with a row for each position


@dataclass(frozen=True)
class Bound:
    """`low <= expr <= high` must hold at each run. `message` may use {value}."""

    expr: Sym
    low: int
    high: int
    message: str

    def check(self, env: Env) -> None:
        value = evaluate(self.expr, env)
        if not self.low <= value <= self.high:
            raise InputError(self.message.format(value=value))


@dataclass(frozen=True)
class IndexBound:
    """Every element of graph input `position` must be in `low .. high`."""

    position: int
    low: int
    high: int
    what: str


@dataclass
class Context:
    """What an op may ask for while its dims flow and its dispatches are planned at one level."""

    env: Env  # the input elements of this run, for `pin`
    input_positions: Mapping[int, int]  # value id (aliases too) -> graph input number
    scratch_limit: int  # bytes one scratch buffer may take
    choices: Choices = field(default_factory=Choices)  # routes that depend on the adapter
    pins: dict[Sym, int] = field(default_factory=dict)
    bounds: dict[Bound, None] = field(default_factory=dict)  # ordered set
    index_bounds: dict[IndexBound, None] = field(default_factory=dict)
    scratch_sizes: dict[Scratch, int] = field(default_factory=dict)
    call: int = 0  # index of the op call being planned

    def pin(self, number: SymExpr | LiveInt) -> int:
        """A shape needs this number: it becomes part of the level."""
        expr = expr_of(number)
        if isinstance(expr, int):
            return expr
        if expr not in self.pins:
            self.pins[expr] = evaluate(expr, self.env)
        return self.pins[expr]

    def choose(self, choice: Choice) -> str:
        """The route to take on this adapter."""
        return self.choices(choice)

    def require(self, expr: SymExpr, low: int, high: int, message: str) -> None:
        """Check now if the level decides `expr`, else before every run."""
        if isinstance(expr, Sym):
            self.bounds[Bound(expr, low, high, message)] = None
        elif not low <= expr <= high:
            raise InputError(message.format(value=expr))

    def require_indices(self, indices: Tensor, low: int, high: int, what: str) -> None:
        """Indices that come from the caller are checked on the host; others are clamped by the kernels."""
        position = self.input_positions.get(indices.value.id)
        if position is not None:
            self.index_bounds[IndexBound(position, low, high, what)] = None

    def scratch(self, nbytes: int) -> Scratch:
        """Memory for this call; at build the largest request of any level sizes it."""
        index = sum(s.call == self.call for s in self.scratch_sizes)
        scratch = Scratch(self.call, index)
        self.scratch_sizes[scratch] = nbytes
        return scratch


class Op:
    """Base of all ops; see the module's docstring."""

    names: ClassVar[tuple[str, ...]] = ()  # what exporters call it
    family: ClassVar[str] = ""  # "norm"
    tolerance: ClassVar[float] = SUMMED  # how far a result may be off, of the largest value in its row
    aliases: ClassVar[str] = ""  # the argument whose memory the output is; planned only if it must be a copy
    mutates: ClassVar[tuple[str, ...]] = ()  # arguments whose memory it writes
    no_halves: ClassVar[tuple[str, ...]] = ()  # arguments that stay float32 where KV caches become halves
    flops_per_element: ClassVar[float] = 1
    reference: ClassVar[Callable[..., Any]]

    @classmethod
    def bound(cls, arguments: dict[str, Any]) -> Op:
        """The op with these arguments; those that are left out have their defaults."""
        self = cls.__new__(cls)
        self.__dict__ = arguments
        return self

    def arguments(self) -> dict[str, Any]:
        """All arguments by name."""
        return {argument.name: getattr(self, argument.name) for argument in arguments_of(type(self))}

    def outputs(self, ctx: Context) -> list[Dims]:
        raise NotImplementedError

    def plan(self, ctx: Context, out: Any) -> Iterable[Dispatch]:
        """The dispatches that write `out`: a `Tensor`, or a tuple of them where the op has several outputs."""
        raise NotImplementedError

    def cost(self, dispatch: Dispatch, env: Env, scratch: Mapping[Scratch, int]) -> Cost:
        """What one of its dispatches costs in a run with these input elements; `scratch` has the sizes of scratch."""
        read = sum(self.bytes_read(tensor, dispatch) for tensor in distinct(dispatch.reads))
        written = sum(self.bytes_written(tensor, dispatch) for tensor in distinct(dispatch.writes))
        read += sum(scratch.get(s, 0) for s in dispatch.reads if isinstance(s, Scratch))
        written += sum(scratch.get(s, 0) for s in dispatch.writes if isinstance(s, Scratch))
        return Cost(read, written, int(self.flops(dispatch)))

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        """How much of a tensor that is read the op needs: all of it, unless it says otherwise."""
        return tensor.nbytes

    def bytes_written(self, tensor: Tensor, dispatch: Dispatch) -> int:
        return tensor.nbytes

    def flops(self, dispatch: Dispatch) -> float:
        return self.flops_per_element * largest(dispatch)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> Any:
        """The reference's result for arrays and numbers; what is left out has its default."""
        return cls.reference(
            **{name: arguments[name] if name in arguments else getattr(cls, name) for name in _reference_names(cls)}
        )

    @classmethod
    def fitting(cls, given: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """Values for arguments that must fit each other, where random ones are no valid call.

        `given` has the arguments by name: dims of tensors, literals. InputError where nothing fits.
        """
        return {}

    def evaluate_on(self, choices: Choices, arguments: Mapping[str, Any]) -> Any:
        """`evaluate`, on the routes that `choices` take: one that changes the numbers (`Choice.exact`) has its own."""
        return self.evaluate(arguments)


class MovingOp(Op):
    """An op that moves elements and computes nothing: of what it picks from, it needs as much as it writes."""

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        if not same(tensor, dispatch.reads[0]):  # indices
            return tensor.nbytes
        return share_of(tensor, sum(out.numel for out in distinct(dispatch.writes)), tensor.numel)


class SymIntOp(Op):
    """An op whose output is a SymInt."""

    def symint(self, ctx: Context) -> SymExpr:
        raise NotImplementedError


REGISTRY: dict[str, type[Op]] = {}
OpClass = TypeVar("OpClass", bound=type[Op])
_REFERENCES: dict[type[Op], tuple[str, ...]] = {}


def op(*names: str, family: str) -> Callable[[OpClass], OpClass]:
    """Register an op class under the names that exporters give it."""

    def register(cls: OpClass) -> OpClass:
        for name in names:
            if name in REGISTRY:
                raise ValueError(f"{name} is registered twice")
            REGISTRY[name] = cls
        cls.names, cls.family = names, family
        cls.tolerance, cls.flops_per_element = FAMILIES[family].tolerance, FAMILIES[family].flops_per_element
        return cls

    return register


def has_kernel(cls: type[Op]) -> bool:
    """Whether it runs on a GPU, or needs none."""
    return issubclass(cls, SymIntOp) or cls.plan is not Op.plan


def _reference_names(cls: type[Op]) -> tuple[str, ...]:
    """The arguments that a reference takes, which must be among those of the op."""
    if cls not in _REFERENCES:
        declared = {argument.name: argument for argument in arguments_of(cls)}
        names = tuple(inspect.signature(cls.reference).parameters)
        if unknown := [name for name in names if name not in declared]:
            raise TypeError(
                f"the reference of {cls.__name__} takes {', '.join(unknown)}, which the op does not declare"
            )
        _REFERENCES[cls] = names
    return _REFERENCES[cls]


def expr_of(number: SymExpr | LiveInt) -> SymExpr:
    """An integer argument, whether literal or live."""
    return number.expr if isinstance(number, LiveInt) else number


def ceil_div(value: int, step: int) -> int:
    return -(-value // step)


def normalize_dim(dim: int, rank: int) -> int:
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise InputError(f"dim {dim} is outside a tensor of rank {rank}")
    return dim % max(rank, 1)


def existing_dim(dim: int, dims: Dims) -> int:
    """`dim` of a tensor that must have it: a scalar has none."""
    if not dims:
        raise InputError(f"dim {dim} of a tensor without dims")
    return normalize_dim(dim, len(dims))


def strides_of(dims: Dims) -> Dims:
    """Element strides of a contiguous tensor."""
    return tuple(math.prod(dims[i + 1 :]) for i in range(len(dims)))


def tensors_in(args: Iterable[Any]) -> Iterator[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, tuple):
            yield from tensors_in(arg)


def require_dtype(kind: str, *tensors: Tensor) -> None:
    """Refuse, at build, tensors that an op has no form for where its kernels would take them."""
    for tensor in tensors:
        if GPU_TYPE.get(tensor.dtype) != kind:
            raise UnsupportedError(f"its kernels take {kind}; tensor {tensor.value.id} is {tensor.dtype}")


__all__ = [
    "CACHING",
    "FUNCTION",
    "GPU_TYPE",
    "MOVED",
    "REGISTRY",
    "REQUIRED",
    "ROUNDED",
    "SUMMED",
    "Bound",
    "Context",
    "Dispatch",
    "IndexBound",
    "Int",
    "Kernel",
    "LiveInt",
    "MovingOp",
    "Op",
    "Scratch",
    "SymIntOp",
    "Tensor",
    "ceil_div",
    "existing_dim",
    "expr_of",
    "has_kernel",
    "kernel",
    "normalize_dim",
    "op",
    "require_dtype",
    "strides_of",
    "tensors_in",
]
