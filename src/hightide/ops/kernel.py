"""Kernels as ops use them: a variant of a WGSL file, and a dispatch of it with everything given by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from hightide.errors import UnsupportedError
from hightide.graph.symbols import SymExpr
from hightide.graph.values import Dims, TensorValue
from hightide.ops.storage import GPU_TYPE, gpu_bytes
from hightide.wgsl.preprocessor import Constant, WgslError
from hightide.wgsl.shader import Interface, ParamValues, Shader, interface, shader

# What a binding of each element type may be given.
TAKES = {
    "f32": ("f32",),
    "i32": ("i32",),
    "u32": ("u8", "blocks"),  # four bytes to a word, or a block's bits
    "word": ("f32", "i32"),
}


@dataclass(frozen=True)
class LiveInt:
    """A SymInt argument as a plan sees it: its value or formula, and where kernels read it."""

    expr: SymExpr
    slot: int


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor value at its live dims. Not to be changed (frozen dataclasses are slow to make)."""

    value: TensorValue
    dims: Dims

    @property
    def dtype(self) -> str:
        return self.value.dtype

    @property
    def nbytes(self) -> int:
        """On the GPU."""
        return gpu_bytes(self.value.dtype, self.dims)

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


Int: TypeAlias = int | LiveInt
Bound: TypeAlias = Tensor | Scratch


@dataclass(slots=True)
class Dispatch:
    """One kernel over `groups` workgroups (folded past the limit of one dimension in one place).

    Parameters and tensors are in the order that the kernel's interface has them in; `Kernel.over` makes a dispatch
    from their names.
    """

    kernel: Kernel
    groups: SymExpr
    params: ParamValues
    reads: tuple[Bound, ...]
    writes: tuple[Bound, ...]

    @property
    def halves(self) -> frozenset[str]:
        """The names of the bindings that are held as halves."""
        bound = zip(self.kernel.interface.binding_names, (*self.reads, *self.writes), strict=True)
        return frozenset(name for name, b in bound if isinstance(b, Tensor) and b.dtype == "float16")

    def check_types(self) -> None:
        """Refuse tensors that the kernel's bindings have no form for."""
        declared = (*self.kernel.interface.reads, *self.kernel.interface.writes)
        for binding, bound in zip(declared, (*self.reads, *self.writes), strict=True):
            takes = TAKES.get(binding.scalar)
            if takes and isinstance(bound, Tensor) and GPU_TYPE.get(bound.dtype) not in takes:
                raise UnsupportedError(
                    f"{self.kernel.name} takes {' or '.join(takes)} for {binding.name}; "
                    f"tensor {bound.value.id} is {bound.dtype}"
                )


@dataclass(frozen=True, eq=False)  # compared by identity: `kernel` makes each once
class Kernel:
    """A route: a variant of a WGSL file of `hightide.ops` ("linear/q4_tile.wgsl"), by its constants."""

    name: str
    file: str
    constants: tuple[tuple[str, Constant], ...]
    interface: Interface
    _shaders: dict[frozenset[str], Shader] = field(default_factory=dict, repr=False)

    def over(self, groups: SymExpr, /, **given: Any) -> Dispatch:
        """A dispatch, with all parameters and tensors that the kernel declares; None for what a variant leaves out."""
        declared = self.interface
        try:
            if declared.live:
                given.update({name: _live(given[name]) for name in declared.live})
            params = tuple([given[name] for name in declared.param_names])
            reads = tuple([given[name] for name in declared.read_names])
            writes = tuple([given[name] for name in declared.write_names])
        except KeyError as error:
            raise WgslError(f"{self.file} declares {error.args[0]}, which {self.name} was not given") from None
        if len(given) != declared.count:
            self._refuse_unknown(given)
        return Dispatch(self, groups, params, reads, writes)

    def _refuse_unknown(self, given: dict[str, Any]) -> None:
        declared = {*self.interface.param_names, *self.interface.binding_names}
        for name, value in given.items():
            if name not in declared and not (name in self.interface.absent and value is None):
                what = "leaves out in this variant" if name in self.interface.absent else "does not declare"
                raise WgslError(f"{self.name} was given {name}, which {self.file} {what}")

    def shader(self, halves: frozenset[str] = frozenset()) -> Shader:
        """Its text, with these bindings held as halves."""
        if halves not in self._shaders:
            self._shaders[halves] = self._make(halves)
        return self._shaders[halves]

    def _make(self, halves: frozenset[str]) -> Shader:
        return shader(OPS, self.file, self.name, self.constants, halves)


OPS = "hightide.ops"  # the package that kernel files are found in


@cache
def _kernel(name: str, file: str, constants: tuple[tuple[str, Constant], ...]) -> Kernel:
    return Kernel(name, file, constants, interface(OPS, file, constants))


def kernel(file: str, route: str = "", /, **constants: Constant) -> Kernel:
    """The route of this name: one kernel per file and constants, so that it is compiled once."""
    name = route or file.rsplit("/", 1)[-1].removesuffix(".wgsl")
    return _kernel(name, file, tuple(sorted(constants.items())))


def _live(value: Int | tuple[int, int]) -> tuple[int, int]:
    """(value, slot) for `live_int`: the slot is -1 where the level decides the value."""
    if isinstance(value, LiveInt):
        return (value.expr, -1) if isinstance(value.expr, int) else (0, value.slot)
    return value if isinstance(value, tuple) else (value, -1)
