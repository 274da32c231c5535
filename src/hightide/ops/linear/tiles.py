"""What the tiled kernels of products share: a thread computes a few rows by four columns."""

from __future__ import annotations

from hightide.ops.contract import Tensor

LANES = 32  # threads per workgroup of the tiled kernels


def rows_per_thread(m: int) -> tuple[int, str]:
    """The row tile for `m` rows and the route's name: a GEMV for one row, small tiles for few, GEMM else."""
    if m == 1:
        return 1, "gemv"
    return (2, "small") if m == 2 else (4, "small" if m <= 4 else "gemm")


def bias_defines(bias: Tensor | bool | None, binding: int, add: str) -> dict[str, object]:
    """Defines of a kernel that takes a bias at `binding` or none at all; a binding costs host time."""
    if bias is None or bias is False:
        return {"BIAS": "// no bias", "ADD_BIAS": "", "OUT": binding}
    declared = f"@group(0) @binding({binding}) var<storage, read> bias: array<f32>;"
    return {"BIAS": declared, "ADD_BIAS": add, "OUT": binding + 1}


def given(*tensors: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(t for t in tensors if t is not None)
