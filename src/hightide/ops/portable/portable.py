"""Ops that have a reference only: what exporters leave outside a delegate, one line or one function per op.

An op's arguments are the parameters of its reference, with their names, types and defaults. References may return
another float or integer type than torch does: the result always takes the type that the program declares.
"""

from __future__ import annotations

import inspect
import math
import operator
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Int, LiveInt, Op, Tensor, op
from hightide.ops.portable import convolution_gradient
from hightide.ops.resample.resample import sampled

Array: TypeAlias = np.ndarray
Reference: TypeAlias = Callable[..., Any]


class ReferenceOp(Op):
    """An op without a GPU kernel."""

    def outputs(self, ctx: Context) -> list[Dims]:
        """Asks the reference itself, with zeros: in a delegate, such an op only ever runs on the CPU."""
        result = self.evaluate({name: _zeros(ctx, arg) for name, arg in self.arguments().items()})
        return [np.shape(r) for r in (result if isinstance(result, tuple) else (result,))]


def _zeros(ctx: Context, arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return np.zeros(arg.dims, "float32" if arg.dtype == "bfloat16" else arg.dtype)
    if isinstance(arg, tuple):
        return tuple(_zeros(ctx, item) for item in arg)
    return ctx.pin(arg) if isinstance(arg, LiveInt) else arg


def register(name: str, reference: Reference) -> None:
    """An op with the parameters of `reference`: an Array is a tensor of the graph, an int may be a SymInt."""
    types = typing.get_type_hints(reference, localns={"Array": Tensor, "int": Int})
    parameters = inspect.signature(reference).parameters.values()
    members = {
        "__doc__": reference.__doc__,
        "__annotations__": {p.name: types.get(p.name, Any) for p in parameters},
        "reference": staticmethod(reference),
        **{p.name: p.default for p in parameters if p.default is not p.empty},
    }
    op(name, family="portable")(type(name, (ReferenceOp,), members))


def _unary(function: Reference) -> Reference:
    return lambda x: function(x)


def _binary(function: Reference) -> Reference:
    return lambda a, b: function(a, b)


# ---- sizes that depend on values

MOST = 1 << 26  # elements: a damaged program may ask for any number


def _repeat_interleave(repeats: Array, output_size: int | None = None) -> Array:
    total = int(repeats.sum())
    if repeats.min(initial=0) < 0 or total > MOST:
        raise InputError(f"{total} elements by repetition")
    return np.repeat(np.arange(len(repeats)), repeats)


VALUE_SIZED: dict[str, Reference] = {
    "aten.nonzero.default": lambda x: np.stack(np.nonzero(np.atleast_1d(x)), axis=-1)[:, : x.ndim],
    "aten.masked_select.default": lambda x, mask: np.extract(*np.broadcast_arrays(mask, x)),
    "aten.repeat_interleave.Tensor": _repeat_interleave,
}

# ---- volumes and matrices


def _grid_sampler_3d(x: Array, grid: Array, mode: int, padding: int, align_corners: bool) -> Array:
    """The volume at places that a grid [N, D, H, W, (x, y, z)] gives, from -1 to 1 over the volume."""
    if x.ndim != 5 or grid.ndim != 5 or grid.shape[-1] != 3 or len(grid) != len(x):
        raise InputError(f"a grid of {list(grid.shape)} for volumes of {list(x.shape)}: it must be [N, D, H, W, 3]")
    return sampled(x, grid, mode, padding, align_corners)


def _svd(x: Array, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None) -> Any:
    """Vectors, singular values and vectors; the sign of a pair of vectors is free, as torch says."""
    try:
        if compute_uv:
            return tuple(np.linalg.svd(x, full_matrices))
        empty = np.zeros(0, x.dtype)
        return empty, np.linalg.svd(x, compute_uv=False), empty
    except np.linalg.LinAlgError as error:
        raise InputError(f"a matrix without singular values: {error}") from None


ARRAYS: dict[str, Reference] = {
    "aten.grid_sampler_3d.default": _grid_sampler_3d,
    "aten._linalg_svd.default": _svd,
}

# ---- training

GRADIENTS: dict[str, Reference] = {"aten.convolution_backward.default": convolution_gradient.reference}

# ---- numbers: what a method computes between delegates

_TWO = ("add", "sub", "mul", "truediv", "floordiv", "eq", "gt", "lt", "ge", "le")
NUMBERS: dict[str, Reference] = {
    "aten._local_scalar_dense.default": lambda x: x.item(),
    **{f"executorch_prim.{name}.Scalar": _binary(getattr(operator, name)) for name in _TWO},
    **{f"executorch_prim.{name}.Scalar": _unary(getattr(math, name)) for name in ("ceil", "floor", "trunc")},
    "executorch_prim.neg.Scalar": _unary(operator.neg),
    "executorch_prim.round.Scalar": _unary(round),
    "executorch_prim.mod.int": lambda a, b: int(math.fmod(a, b)),
    "executorch_prim.mod.Scalar": lambda a, b: int(math.fmod(a, b)),
    "executorch_prim.sym_float.Scalar": _unary(float),
    "executorch_prim.sym_max.Scalar": _binary(max),
    "executorch_prim.sym_min.Scalar": _binary(min),
    # torch.map writes its results one by one: `to` grows
    "executorch_prim.et_copy_index.tensor": lambda to, source, index: np.concatenate([to[:index], source[None]]),
}

for _name, _reference in {**VALUE_SIZED, **ARRAYS, **GRADIENTS, **NUMBERS}.items():
    register(_name, _reference)
