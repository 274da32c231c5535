"""Where the windows of a convolution or a pooling lie: their parameters, checked, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.legacy import Context, LiveInt, expr_of


def per_dim(ctx: Context, values: Any, rank: int, what: str, least: int = 0) -> Dims:
    """A number for each of `rank` spatial dims; torch lets one stand for all."""
    given = values if isinstance(values, tuple | list) else (values,)
    numbers = tuple(ctx.pin(expr_of(v)) if isinstance(v, LiveInt) else int(v) for v in given)
    numbers = numbers * rank if len(numbers) == 1 else numbers
    if len(numbers) != rank or min(numbers, default=least) < least:
        raise InputError(f"{what} is {list(given)}: it must be {rank} numbers of at least {least}")
    return numbers


@dataclass(frozen=True)
class Windows:
    """Windows over spatial dims, one number per dim."""

    size: Dims
    stride: Dims
    padding: Dims
    dilation: Dims

    @property
    def reach(self) -> Dims:
        """How far a window spans, gaps counted."""
        return tuple(d * (s - 1) + 1 for d, s in zip(self.dilation, self.size, strict=True))

    def count(self, spatial: Dims) -> Dims:
        """How many windows fit the padded input; torch wants one at least."""
        padded = tuple(n + 2 * p for n, p in zip(spatial, self.padding, strict=True))
        if any(n < r for n, r in zip(padded, self.reach, strict=True)):
            raise InputError(f"windows that span {list(self.reach)} do not fit a padded input of {list(padded)}")
        return tuple((n - r) // s + 1 for n, r, s in zip(padded, self.reach, self.stride, strict=True))

    def count_up(self, spatial: Dims) -> Dims:
        """As `count` in ceil mode: a last window may run over the end, but must start within it."""
        counts = []
        for n, p, r, s in zip(spatial, self.padding, self.reach, self.stride, strict=True):
            windows = -(-(n + 2 * p - r) // s) + 1
            counts.append(windows - 1 if (windows - 1) * s >= n + p else windows)
        if min(counts) < 1:
            raise InputError(f"windows that span {list(self.reach)} do not fit an input of {list(spatial)}")
        return tuple(counts)

    def spread(self, spatial: Dims, extra: Dims) -> Dims:
        """The output size of a transposed convolution over `spatial`, with `extra` (output_padding) at the end."""
        sizes = tuple(
            (n - 1) * s - 2 * p + r + e
            for n, s, p, r, e in zip(spatial, self.stride, self.padding, self.reach, extra, strict=True)
        )
        if min(sizes) < 1:
            raise InputError(f"a transposed convolution of {list(spatial)} would give {list(sizes)}")
        return sizes
