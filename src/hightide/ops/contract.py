"""What an op is: its output dims, its dispatches and its meaning.

An op says three things and keeps no state:

* `outputs`   checks its live arguments and says the live dims of its outputs, exactly;
* `plan`      live dims -> dispatches (route, grid, parameters). The same function runs at the max
              dims when a session is built and at the live dims of every new level;
* `reference` what it means, in NumPy.

Tensor arguments arrive as `Tensor` (a value with its live dims), SymInts as `LiveInt`, literals as
Python objects, lists as tuples; a reference gets arrays and plain ints. Ops on SymInts give `symint`
instead of `outputs` and `plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar

from hightide.errors import InputError, UnsupportedError
from hightide.graph.symbols import Env, Sym, SymExpr, evaluate
from hightide.graph.values import Dims, TensorValue
from hightide.ops.choices import Choice, Choices

# The types that kernels compute in: int64 is narrowed with a range check, halves are f32 once they are loaded
# (gpu/halves.py), bytes are packed four to a word.
GPU_TYPE = {
    "float32": "f32",
    "float16": "f32",
    "int32": "i32",
    "int64": "i32",
    "uint8": "u8",
    "int8": "u8",
    "bool": "u8",
}
# GGUF's types, which stay in their blocks.
GPU_TYPE |= dict.fromkeys(
    ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"], "blocks"
)


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor value at its live dims. Not to be changed (frozen dataclasses are slow to make)."""

    value: TensorValue
    dims: Dims

    @property
    def dtype(self) -> str:
        return self.value.dtype

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def numel(self) -> int:
        return math.prod(self.dims)

    @property
    def width(self) -> int:
        """The last dim; 1 for a scalar."""
        return self.dims[-1] if self.dims else 1

    @property
    def rows(self) -> int:
        """How many vectors of `width` there are."""
        return math.prod(self.dims[:-1])


@dataclass(frozen=True)
class Scratch:
    """Memory that lives for one op call; `index` tells several of one call apart."""

    call: int
    index: int


Binding: TypeAlias = Tensor | Scratch


@dataclass(frozen=True, eq=False)  # compared by identity: `kernel` makes each once
class Kernel:
    """A route: a WGSL file of `hightide.ops` ("linear/q4_tile.wgsl") with `$NAME` filled in from `defines`."""

    name: str
    file: str
    defines: tuple[tuple[str, str], ...] = ()


def kernel(file: str, route: str = "", /, **defines: object) -> Kernel:
    """The route of this name: one kernel per file and defines, so that it is compiled once."""
    name = route or file.rsplit("/", 1)[-1].removesuffix(".wgsl")
    return _kernel(name, file, tuple((key, str(defines[key])) for key in sorted(defines)))


@cache
def _kernel(name: str, file: str, defines: tuple[tuple[str, str], ...]) -> Kernel:
    return Kernel(name, file, defines)


@dataclass(slots=True)
class Dispatch:
    """One kernel over `groups` workgroups (folded past the limit of one dimension in one place).

    `params` are packed as 32-bit words into the kernel's uniform; a nested tuple is padded to
    eight words (two `vec4<u32>`: dims or strides). Bindings follow in the order reads, writes.
    """

    kernel: Kernel
    groups: SymExpr
    params: tuple[int | float | tuple[int, ...], ...]
    reads: tuple[Binding, ...]
    writes: tuple[Binding, ...]


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
    input_positions: dict[int, int]  # value id (aliases too) -> graph input number
    scratch_limit: int  # bytes one scratch buffer may take
    choices: Choices = field(default_factory=Choices)  # routes that depend on the adapter
    pins: dict[Sym, int] = field(default_factory=dict)
    bounds: dict[Bound, None] = field(default_factory=dict)  # ordered set
    index_bounds: dict[IndexBound, None] = field(default_factory=dict)
    scratch_sizes: dict[Scratch, int] = field(default_factory=dict)
    call: int = 0  # index of the op call being planned

    def pin(self, expr: SymExpr) -> int:
        """A shape needs this number: it becomes part of the level."""
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


@dataclass(frozen=True)
class LiveInt:
    """A SymInt argument as a plan sees it: its value or formula, and where kernels read it."""

    expr: SymExpr
    slot: int


class Op:
    """Base of all ops. Subclasses give the three parts; see the module's docstring."""

    view: ClassVar[bool] = False  # the output is the first argument's memory; planned only if it must be a copy
    mutates: ClassVar[tuple[int, ...]] = ()  # arguments whose memory the op writes

    def outputs(self, ctx: Context, *args: Any) -> list[Dims]:
        raise NotImplementedError

    def plan(self, ctx: Context, *args: Any, out: Any) -> Iterable[Dispatch]:
        raise NotImplementedError

    def reference(self, *args: Any) -> Any:
        raise NotImplementedError


class SymIntOp(Op):
    """An op whose output is a SymInt."""

    def symint(self, ctx: Context, *args: Any) -> SymExpr:
        raise NotImplementedError


REGISTRY: dict[str, Op] = {}
OpClass = TypeVar("OpClass", bound=type[Op])


def op(*names: str) -> Callable[[OpClass], OpClass]:
    """Register an op class under the names that exporters give it."""

    def register(cls: OpClass) -> OpClass:
        add(cls(), *names)
        return cls

    return register


def add(instance: Op, *names: str) -> None:
    for name in names:
        if name in REGISTRY:
            raise ValueError(f"{name} is registered twice")
        REGISTRY[name] = instance


def expr_of(arg: int | LiveInt) -> SymExpr:
    """An integer argument, whether literal or live."""
    return arg.expr if isinstance(arg, LiveInt) else arg


def live_params(arg: int | LiveInt) -> tuple[int, int]:
    """(value, slot) for a kernel's `live_int`: the slot is -1 where the level decides the value."""
    if isinstance(arg, LiveInt):
        return (arg.expr, -1) if isinstance(arg.expr, int) else (0, arg.slot)
    return arg, -1


def ceil_div(value: int, step: int) -> int:
    return -(-value // step)


def normalize_dim(dim: int, rank: int) -> int:
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise InputError(f"dim {dim} is outside a tensor of rank {rank}")
    return dim % max(rank, 1)


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
    """Refuse, at build, tensors that a kernel has no form for."""
    for tensor in tensors:
        if GPU_TYPE.get(tensor.dtype) != kind:
            raise UnsupportedError(f"its kernels take {kind}; tensor {tensor.value.id} is {tensor.dtype}")
