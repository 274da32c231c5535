"""Kernel calls of a program, outside its delegates: which op of the registry each one is, and how to call it.

The exporter writes out-variants: `aten::add.out(x, y, alpha, out, out)` for `aten.add.Tensor(x, y, alpha)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hightide.errors import UnsupportedError
from hightide.formats.instructions import KernelCall
from hightide.formats.program_file import EValue, MethodFile, ValueListSpec
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.contract import Op

# Out-variants whose overload does not say that of the op itself, as (name, overload).
OVERLOADS = {
    "aten::_linalg_svd.U": "aten._linalg_svd.default",
    "aten::all.all_out": "aten.all.default",
    "aten::all.out": "aten.all.dim",
    "aten::any.all_out": "aten.any.default",
    "aten::any.out": "aten.any.dim",
    "aten::arange.start_out": "aten.arange.start_step",
    "aten::div.out_mode": "aten.div.Tensor_mode",
    "aten::max_pool2d_with_indices_backward.grad_input": "aten.max_pool2d_with_indices_backward.default",
    "aten::max.dim_max": "aten.max.dim",
    "aten::max.unary_out": "aten.max.default",
    "aten::mean.dtype_out": "aten.mean.default",
    "aten::mean.out": "aten.mean.dim",
    "aten::median.dim_values": "aten.median.dim",
    "aten::min.dim_min": "aten.min.dim",
    "aten::min.unary_out": "aten.min.default",
    "aten::nanmedian.dim_values": "aten.nanmedian.dim",
    "aten::prod.int_out": "aten.prod.dim_int",
    "aten::sort.values": "aten.sort.default",
    "aten::sort.values_stable": "aten.sort.stable",
    "aten::sum.IntList_out": "aten.sum.dim_IntList",
    "aten::topk.values": "aten.topk.default",
    "aten::var.out": "aten.var.dim",
    "executorch_prim::et_view.default": "aten.view_copy.default",
    "llama::sdpa_with_kv_cache.out": "sdpa_with_kv_cache.default",
}
# What the exporter adds for sizes and loops: host work on any device, so nothing to report.
HOST_KERNELS = ("executorch_prim::", "aten::sym_", "aten::_local_scalar_dense")


@cache
def find_name(kernel: str) -> str | None:
    """The name of the op that a kernel stands for, if hightide has its reference."""
    return next((name for name in _candidates(kernel) if name in REGISTRY), None)


def find_op(kernel: str) -> type[Op] | None:
    name = find_name(kernel)
    return None if name is None else REGISTRY[name]


def _candidates(kernel: str) -> list[str]:
    if kernel in OVERLOADS:
        return [OVERLOADS[kernel]]
    namespace, _, rest = kernel.partition("::")
    name, _, overload = rest.partition(".")
    if is_inplace(kernel):
        name = name.removesuffix("_")
    base = f"{namespace}.{name}"
    if overload in ("", "out"):  # "add.out" stands for "add.Tensor"
        return [f"{base}.default", f"{base}.Tensor"]
    return [f"{base}.{overload.removesuffix('_out')}"]


def is_inplace(kernel: str) -> bool:
    """`aten::copy_` and such write their first argument."""
    name = kernel.partition("::")[2].partition(".")[0]
    return name.endswith("_") and not name.endswith("__")


def is_host_work(kernel: str) -> bool:
    return kernel.startswith(HOST_KERNELS)


@dataclass(frozen=True)
class Signature:
    """A kernel call's arguments: the values it reads, those it defines, those it changes in place."""

    reads: tuple[int, ...]  # as the reference takes them; a list is one value
    writes: tuple[int, ...]
    changes: tuple[int, ...] = ()  # values whose arrays the reference writes into


def signature(call: KernelCall, values: Sequence[EValue], op: type[Op]) -> Signature:
    """Splits the arguments: the outputs are given last, then once more as what the kernel returns."""
    args = call.args
    if not args:
        raise UnsupportedError(f"{call.op} is called without arguments, so it has no output")
    last = values[args[-1]]
    if is_inplace(call.op):
        return Signature(args[:-1], args[:1])
    if call.op == "executorch_prim::et_copy_index.tensor":  # (to, from, index), nothing is returned
        return Signature(args, args[:1])
    if isinstance(last, ValueListSpec):
        # A list of outputs is given as a list; several outputs one by one, and a list of them is returned.
        given = values[args[-2]] if len(args) > 1 else None
        count = 2 if isinstance(given, ValueListSpec) and given.items == last.items else len(last.items) + 1
        reads, writes = args[:-count], last.items
    else:
        count = 2 if len(args) > 1 and args[-2] == args[-1] else 1
        reads, writes = args[:-count], args[-1:]
    names = [argument.name for argument in arguments_of(op)]
    changes = tuple(id for name, id in zip(names, reads, strict=False) if name in op.mutates)
    return Signature(reads, writes, changes)


@dataclass(frozen=True)
class BoundKernel:
    """A kernel call with its op and what it does to the method's values."""

    call: KernelCall
    name: str  # of the op
    op: type[Op]
    signature: Signature


def bind_kernels(method: MethodFile) -> dict[int, BoundKernel]:
    """The kernel calls of a method by their place among its instructions; all have an op, as checked at load."""
    bound = {}
    for n, call in enumerate(method.instructions):
        if isinstance(call, KernelCall):
            name = find_name(call.op)
            assert name is not None, "the program was checked when it was loaded"
            bound[n] = BoundKernel(call, name, REGISTRY[name], signature(call, method.values, REGISTRY[name]))
    return bound
