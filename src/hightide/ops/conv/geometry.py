"""Where the windows of convolutions and poolings lie: their sizes and steps, checked, and how many fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Tensor
from hightide.ops.cost import distinct

Sizes: TypeAlias = Int | tuple[Int, ...]  # a number per spatial dim; torch lets one stand for all
NO_CONTEXT = Context({}, {}, 0)  # for references, whose arguments are plain numbers


def per_dim(ctx: Context, values: Sizes, rank: int, what: str, least: int = 0) -> Dims:
    """A number for each of `rank` spatial dims."""
    given = values if isinstance(values, tuple | list) else (values,)
    numbers = tuple([ctx.pin(v) for v in given])
    spread = numbers * rank if len(numbers) == 1 else numbers
    if len(spread) != rank or min(spread, default=least) < least:
        raise InputError(f"{what} is {list(numbers)}: it must be {rank} numbers of at least {least}")
    return spread


@dataclass(frozen=True)
class Windows:
    """Windows over spatial dims, one number per dim."""

    size: Dims
    stride: Dims
    padding: Dims
    dilation: Dims

    @classmethod
    def of(cls, ctx: Context, rank: int, size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes = 1) -> Windows:
        return cls(
            size=per_dim(ctx, size, rank, "kernel_size", least=1),
            stride=per_dim(ctx, stride, rank, "stride", least=1),
            padding=per_dim(ctx, padding, rank, "padding"),
            dilation=per_dim(ctx, dilation, rank, "dilation", least=1),
        )

    @property
    def reach(self) -> Dims:
        """How far a window spans, gaps counted."""
        return tuple(d * (s - 1) + 1 for d, s in zip(self.dilation, self.size, strict=True))

    def count(self, spatial: Dims) -> Dims:
        """How many windows fit the padded input; as in torch, one at least must."""
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
        if any(e >= max(s, d) for e, s, d in zip(extra, self.stride, self.dilation, strict=True)):
            raise InputError(f"output_padding {list(extra)} must be smaller than the stride or the dilation")
        sizes = tuple(
            (n - 1) * s - 2 * p + r + e
            for n, s, p, r, e in zip(spatial, self.stride, self.padding, self.reach, extra, strict=True)
        )
        if min(sizes) < 1:
            raise InputError(f"a transposed convolution of {list(spatial)} would give {list(sizes)}")
        return sizes


@dataclass(frozen=True)
class ConvShape:
    """A convolution at its live dims."""

    windows: Windows
    groups: int
    transposed: bool
    batch: int
    in_channels: int  # of one group
    out_channels: int  # of one group
    in_size: Dims
    out_size: Dims

    @classmethod
    def of(cls, x: Dims, weight: Dims, windows: Windows, groups: int, extra: Dims | None = None) -> ConvShape:
        """Of x [N, C, ...], checked as torch does; `extra` is the output_padding of a transposed convolution.

        The weight is [out, in / groups, ...], that of a transposed convolution [in, out / groups, ...].
        """
        if len(weight) < 3 or len(x) != len(weight):
            raise InputError(f"an input of {list(x)} does not fit a weight of {list(weight)}")
        if 0 in x[2:]:
            raise InputError(f"an input of {list(x)} has no pixels; only its batch may be 0")
        if extra is None:
            ins, outs, out_size = weight[1] * groups, weight[0] // groups, windows.count(x[2:])
        else:
            ins, outs, out_size = weight[0], weight[1], windows.spread(x[2:], extra)
        if x[1] != ins or weight[0] % groups:
            raise InputError(f"{x[1]} channels do not fit a weight of {list(weight)} in {groups} groups")
        return cls(windows, groups, extra is not None, x[0], ins // groups, outs, x[2:], out_size)

    @property
    def out_dims(self) -> Dims:
        return (self.batch, self.groups * self.out_channels, *self.out_size)

    @property
    def pointwise(self) -> bool:
        """A matrix product: each output pixel sees the input pixel at its place, and all channels."""
        windows = self.windows
        ones = (*windows.size, *windows.stride, self.groups)
        return not self.transposed and all(n == 1 for n in ones) and not any(windows.padding)


def conv_flops(x: Tensor, taps: int, transposed: bool, dispatch: Dispatch) -> int:
    """Two operations per tap: of each output pixel, or, transposed, of each input pixel."""
    return 2 * taps * (x.numel if transposed else sum(out.numel for out in distinct(dispatch.writes)))
