"""What the tiled kernels of products share: a thread computes a few rows by four columns."""

from __future__ import annotations

LANES = 32  # threads per workgroup of the tiled kernels


def rows_per_thread(m: int, alike: bool = False) -> tuple[int, str]:
    """The row tile for `m` rows and the route's name: a GEMV for one row, small tiles for few, GEMM else.

    With all rows `alike` it is always the GEMM's.
    """
    if alike:
        return 4, "gemm"
    if m == 1:
        return 1, "gemv"
    return (2, "small") if m == 2 else (4, "small" if m <= 4 else "gemm")
