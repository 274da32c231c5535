"""Images at other sizes and places: upsampling, sampling at a grid of coordinates, pixel (un)shuffling."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Int, Kernel, Op, Tensor, ceil_div, kernel, op, strides_of
from hightide.ops.conv.geometry import NO_CONTEXT, Sizes, per_dim
from hightide.ops.movement.strided import move

# In the order of torch's numbers for them: how a pixel is found, and what is beyond an image's edges.
SAMPLERS, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@dataclass(frozen=True)
class Scaling:
    """How an image is upsampled: to a size, or by factors, which then also say how far apart the places are."""

    size: Sizes | None
    factors: tuple[float, ...] | None
    nearest: bool  # else bilinear
    corners: bool = False  # the centers of corner pixels stay where they are

    def out_size(self, ctx: Context, dims: Dims) -> Dims:
        """Height and width as torch has them: given, or the live ones times the factors, cut to whole numbers."""
        _check_image(dims)
        if (self.size is None) == (self.factors is None):
            raise InputError("exactly one of the output size and the scale factors must be given")
        if self.size is not None:
            return per_dim(ctx, self.size, 2, "output_size", least=1)
        factors = self.factors or ()
        if len(factors) != 2 or not all(0 < f < 2**31 for f in factors):
            raise InputError(f"the scale factors are {list(factors)}: a positive one for the height, one for the width")
        sizes = tuple(int(n * float(f)) for n, f in zip(dims[-2:], factors, strict=True))
        if min(sizes) < 1:
            raise InputError(f"an image of {list(dims[-2:])} scaled by {list(factors)} has no pixels")
        return sizes

    def scales(self, dims: Dims, out: Dims) -> tuple[float, float]:
        """Input pixels per output pixel, in height and width."""
        by_y, by_x = self.factors or (None, None)
        return self._scale(dims[-2], out[-2], by_y), self._scale(dims[-1], out[-1], by_x)

    def _scale(self, size: int, out_size: int, factor: float | None) -> float:
        if self.corners:
            return (size - 1) / (out_size - 1) if out_size > 1 else 0.0
        if out_size in (
            size,
            2 * size if self.nearest else size,
        ):  # torch then ignores the factor, which may be a fraction
            return size / out_size
        return 1 / factor if factor and factor > 0 else size / out_size


class Upsample(Op):
    """Base of images at another size."""

    x: Tensor
    size: Sizes | None

    @property
    def scaling(self) -> Scaling:
        raise NotImplementedError

    def outputs(self, ctx: Context) -> list[Dims]:
        return [(*self.x.dims[:2], *self.scaling.out_size(ctx, self.x.dims))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        scaling = self.scaling
        route = _resample("nearest" if scaling.nearest else "bilinear", False, "border", scaling.corners)
        yield _dispatch(route, self.x, out, scales=scaling.scales(self.x.dims, out.dims))


@op("aten.upsample_nearest2d.vec", family="resample")
class UpsampleNearest(Upsample):
    """An image at another size, each pixel the nearest one."""

    factors: tuple[float, ...] | None = None

    @property
    def scaling(self) -> Scaling:
        return Scaling(self.size, self.factors, nearest=True)

    @staticmethod
    def reference(x: np.ndarray, size: Sizes | None, factors: tuple[float, ...] | None) -> np.ndarray:
        scaling = Scaling(size, factors, nearest=True)
        out_size = scaling.out_size(NO_CONTEXT, x.shape)
        rows, columns = (
            np.minimum(np.floor(np.arange(m, dtype=np.float32) * np.float32(scale)).astype(int), n - 1)
            for m, n, scale in zip(out_size, x.shape[-2:], scaling.scales(x.shape, out_size), strict=True)
        )
        return x[..., rows[:, None], columns]


@op("aten.upsample_bilinear2d.vec", family="resample")
class UpsampleBilinear(Upsample):
    """An image at another size, each pixel mixed from the four around its place."""

    align_corners: bool
    factors: tuple[float, ...] | None = None

    @property
    def scaling(self) -> Scaling:
        return Scaling(self.size, self.factors, nearest=False, corners=self.align_corners)

    @staticmethod
    def reference(
        x: np.ndarray, size: Sizes | None, align_corners: bool, factors: tuple[float, ...] | None
    ) -> np.ndarray:
        scaling = Scaling(size, factors, nearest=False, corners=align_corners)
        out_size = scaling.out_size(NO_CONTEXT, x.shape)
        half = 0.0 if align_corners else 0.5
        rows, columns = (
            np.clip((np.arange(m, dtype=x.dtype) + half) * x.dtype.type(scale) - half, 0, n - 1)
            for m, n, scale in zip(out_size, x.shape[-2:], scaling.scales(x.shape, out_size), strict=True)
        )
        places = np.broadcast_arrays(rows[:, None], columns)
        return _mix(x, *(np.broadcast_to(p, (len(x), *out_size)) for p in places))


@op("aten._upsample_bilinear2d_aa.default", family="resample")
class UpsampleBilinearSmooth(Op):
    """An image at another size, each pixel the mean of those around its place, by weights that fall to the sides.

    Where the image gets smaller, all pixels that one stands for count (antialiasing).
    """

    x: Tensor
    size: tuple[Int, ...]
    align_corners: bool
    scale_y: float | None = None
    scale_x: float | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        _check_image(self.x.dims)
        return [(*self.x.dims[:2], *per_dim(ctx, self.size, 2, "output_size", least=1))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        scales = _smooth_scales(self.x.dims, out.dims, self.align_corners, self.scale_y, self.scale_x)
        yield kernel("resample/smooth.wgsl").over(
            ceil_div(out.numel, 64),
            x=self.x,
            out=out,
            numel=out.numel,
            in_size=self.x.dims[-2:],
            out_size=out.dims[-2:],
            scale_y=scales[0],
            scale_x=scales[1],
        )

    def flops(self, dispatch: Dispatch) -> float:
        return 4 * (self.x.numel + sum(out.numel for out in dispatch.writes if isinstance(out, Tensor)))

    @staticmethod
    def reference(
        x: np.ndarray, size: Dims, align_corners: bool, scale_y: float | None, scale_x: float | None
    ) -> np.ndarray:
        out = (*x.shape[:2], *size)
        scales = _smooth_scales(x.shape, out, align_corners, scale_y, scale_x)
        down, right = (_smooth_weights(n, m, s) for n, m, s in zip(x.shape[2:], size, scales, strict=True))
        return (down @ x @ right.T).astype(x.dtype)


def _smooth_scales(
    dims: Dims, out: Dims, corners: bool, scale_y: float | None, scale_x: float | None
) -> tuple[float, float]:
    """Input pixels per output pixel, in height and width."""

    def one(size: int, to: int, factor: float | None) -> float:
        if corners:
            return (size - 1) / (to - 1) if to > 1 else 0.0
        return 1 / factor if factor and factor > 0 else size / to

    return one(dims[-2], out[-2], scale_y), one(dims[-1], out[-1], scale_x)


def _smooth_weights(size: int, to: int, scale: float) -> np.ndarray:
    """What each of `size` pixels counts in each of `to`."""
    reach, pixel = max(scale, 1.0), np.arange(size)
    center = scale * (np.arange(to)[:, None] + 0.5)
    first = np.maximum(np.trunc(center - reach + 0.5), 0)
    inside = (pixel >= first) & (pixel < np.minimum(np.trunc(center + reach + 0.5), size))
    weight = np.where(inside, np.maximum(1 - np.abs(pixel - center + 0.5) / reach, 0), 0)
    total = weight.sum(axis=1, keepdims=True)
    return weight / np.where(total, total, 1)


@op("aten.grid_sampler_2d.default", family="resample")
class GridSampler(Op):
    """The image at places that a grid [N, H, W, (x, y)] gives, from -1 to 1 over the image."""

    x: Tensor
    grid: Tensor
    mode: int  # of SAMPLERS
    padding: int  # of PADDINGS
    align_corners: bool

    def outputs(self, ctx: Context) -> list[Dims]:
        x, grid = self.x, self.grid
        _check_image(x.dims)
        if grid.rank != 4 or grid.width != 2 or grid.dims[0] != x.dims[0]:
            raise InputError(f"a grid of {list(grid.dims)} for {x.dims[0]} images: it must be [N, H, W, 2]")
        return [(*x.dims[:2], *grid.dims[1:3])]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if self.mode not in (0, 1, 2) or self.padding not in (0, 1, 2):
            raise UnsupportedError(f"interpolation mode {self.mode} with padding mode {self.padding} has no kernel")
        if out.numel:
            route = _resample(SAMPLERS[self.mode], True, PADDINGS[self.padding], self.align_corners)
            yield _dispatch(route, self.x, out, self.grid)

    @staticmethod
    def reference(x: np.ndarray, grid: np.ndarray, mode: int, padding: int, align_corners: bool) -> np.ndarray:
        if mode == 2:
            rows, columns = _grid_places(x, grid, align_corners)
            return _mix_cubic(x, rows, columns, padding, align_corners)
        return sampled(x, grid, mode, padding, align_corners)


def sampled(x: np.ndarray, grid: np.ndarray, mode: int, padding: int, align_corners: bool) -> np.ndarray:
    """x [N, C, (D,) H, W] between pixels, or at the nearest, at the places of a grid [N, .., (x, y(, z))]."""
    if mode not in (0, 1):
        raise UnsupportedError(f"interpolation mode {mode} has no reference")
    places = zip(_grid_places(x, grid, align_corners), x.shape[2:], strict=True)
    inside = [_padded(place, n, padding, align_corners) for place, n in places]
    return _pixels(x, *(np.round(p) for p in inside)) if mode else _mix(x, *inside)


def _grid_places(x: np.ndarray, grid: np.ndarray, corners: bool) -> list[np.ndarray]:
    """Of each dim of an image the places in pixels; a grid has them from -1 to 1, the last dim's first."""
    at = zip(np.moveaxis(grid, -1, 0)[::-1], x.shape[2:], strict=True)
    return [(p + 1) / 2 * (n - 1) if corners else ((p + 1) * n - 1) / 2 for p, n in at]


@cache
def _resample(sampler: str, grid: bool, padding: str, corners: bool) -> Kernel:
    route = f"{'grid' if grid else 'upsample'}_{sampler}"
    constants: dict[str, str | bool] = {"GRID": grid, "SAMPLER": sampler, "CORNERS": corners}
    return kernel("resample/resample.wgsl", route, PADDING=padding, **constants)


def _dispatch(
    route: Kernel, x: Tensor, out: Tensor, grid: Tensor | None = None, scales: tuple[Any, Any] = (None, None)
) -> Dispatch:
    sizes = {"numel": out.numel, "channels": x.dims[1], "in_size": x.dims[-2:], "out_size": out.dims[-2:]}
    groups = ceil_div(out.numel, 64)
    return route.over(groups, x=x, grid=grid, out=out, scale_y=scales[0], scale_x=scales[1], **sizes)


def _check_image(dims: Dims) -> None:
    if len(dims) != 4 or 0 in dims[-3:]:
        raise InputError(f"{list(dims)} is not an image: it must be [N, C, H, W], only N may be 0")


def _reflect(place: np.ndarray, low: float, span: float) -> np.ndarray:
    if not span:
        return np.zeros_like(place)
    distance = np.abs(place - low)
    rest, turns = np.fmod(distance, span), np.floor(distance / span)
    return low + np.where(turns % 2 == 0, rest, span - rest)


def _padded(place: np.ndarray, size: int, padding: int, corners: bool) -> np.ndarray:
    """Places beyond the edges moved inside, as the padding says."""
    if padding == 2:
        place = _reflect(place, 0 if corners else -0.5, size - 1 if corners else size)
    return np.clip(place, 0, size - 1) if padding else place


def _pixels(x: np.ndarray, *places: np.ndarray) -> np.ndarray:
    """x [N, C, ..] at whole places, an array [N, ..] for each dim, and zero where there is no pixel."""
    inside = np.all([(p >= 0) & (p < n) for p, n in zip(places, x.shape[2:], strict=True)], axis=0)
    batch, channel = np.ogrid[: x.shape[0], : x.shape[1]]
    ones = (1,) * len(places)
    at: tuple[Any, ...] = (batch.reshape(-1, 1, *ones), channel.reshape(-1, *ones))
    at += tuple(np.where(inside, p, 0).astype(int)[:, None] for p in places)
    return np.where(inside[:, None], x[at], 0).astype(x.dtype)


def _mix(x: np.ndarray, *places: np.ndarray) -> np.ndarray:
    """x between the pixels around each place."""
    first = [np.floor(p) for p in places]
    result: Any = 0
    for corner in np.ndindex((2,) * len(places)):
        near = [(p - f if c else f + 1 - p)[:, None] for p, f, c in zip(places, first, corner, strict=True)]
        result = result + math.prod(near) * _pixels(x, *(f + c for f, c in zip(first, corner, strict=True)))
    return result.astype(x.dtype)


def _mix_cubic(x: np.ndarray, rows: np.ndarray, columns: np.ndarray, padding: int, corners: bool) -> np.ndarray:
    """x by cubic curves through the sixteen pixels around each place [N, H, W]; each of them is padded by itself."""
    top, left = np.floor(rows), np.floor(columns)
    result = np.zeros((*x.shape[:2], *rows.shape[1:]), x.dtype)
    for i in range(-1, 3):
        for j in range(-1, 3):
            weight = _cubic(rows - top - i) * _cubic(columns - left - j)
            taps = (_padded(top + i, x.shape[2], padding, corners), _padded(left + j, x.shape[3], padding, corners))
            result += weight[:, None].astype(x.dtype) * _pixels(x, *(np.trunc(tap) for tap in taps))
    return result


def _cubic(distance: np.ndarray) -> np.ndarray:
    """The weight of a pixel at a distance of up to 2."""
    d = np.abs(distance)
    return np.where(d <= 1, (1.25 * d - 2.25) * d * d + 1, ((-0.75 * d + 3.75) * d - 6) * d + 3)


@op("aten.pixel_shuffle.default", family="resample")
class PixelShuffle(Op):
    """[.., C r r, H, W] as [.., C, H r, W r]: channels become pixels."""

    x: Tensor
    factor: int

    def outputs(self, ctx: Context) -> list[Dims]:
        return [shuffled_dims(self.x.dims, self.factor)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        box, strides = shuffled_box(self.x.dims, self.factor)
        yield move(self.x, out, box, strides, strides_of(box))

    @staticmethod
    def reference(x: np.ndarray, factor: int) -> np.ndarray:
        return shuffled(x, factor)


@op("aten.pixel_unshuffle.default", family="resample")
class PixelUnshuffle(Op):
    """[.., C, H r, W r] as [.., C r r, H, W]: pixels become channels."""

    x: Tensor
    factor: int

    def outputs(self, ctx: Context) -> list[Dims]:
        x, factor = self.x, self.factor
        if x.rank < 3 or factor < 1 or x.dims[-1] % factor or x.dims[-2] % factor:
            raise InputError(f"{list(x.dims)} cannot be unshuffled by {factor}: height and width must be multiples")
        *lead, channels, height, width = x.dims
        return [(*lead, channels * factor * factor, height // factor, width // factor)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        blocks, _ = shuffled_box(out.dims, self.factor)  # x, [images, H, r, W, r]
        order = (0, 2, 4, 1, 3)  # of the output
        box, strides = (tuple(sizes[d] for d in order) for sizes in (blocks, strides_of(blocks)))
        yield move(self.x, out, box, strides, strides_of(box))

    @staticmethod
    def reference(x: np.ndarray, factor: int) -> np.ndarray:
        *lead, channels, height, width = x.shape
        blocks = x.reshape(*lead, channels, height // factor, factor, width // factor, factor)
        moved = np.moveaxis(blocks, (-3, -1), (-4, -3))
        return moved.reshape(*lead, channels * factor * factor, height // factor, width // factor)


def shuffled_dims(dims: Dims, factor: int) -> Dims:
    if len(dims) < 3 or factor < 1 or dims[-3] % (factor * factor):
        raise InputError(f"{list(dims)} cannot be shuffled by {factor}: channels must be a multiple of its square")
    *lead, channels, height, width = dims
    return (*lead, channels // factor**2, height * factor, width * factor)


def shuffled_box(dims: Dims, factor: int) -> tuple[Dims, Dims]:
    """The shuffled image as a box [images, H, r, W, r], and the strides that read it from an image of `dims`."""
    *lead, channels, height, width = dims
    plane = height * width
    box = (math.prod(lead) * channels // factor**2, height, factor, width, factor)
    return box, (plane * factor**2, width, plane * factor, 1, plane)


def shuffled(x: np.ndarray, factor: int) -> np.ndarray:
    *lead, channels, height, width = x.shape
    blocks = x.reshape(*lead, channels // factor**2, factor, factor, height, width)
    return np.moveaxis(blocks, (-4, -3), (-3, -1)).reshape(shuffled_dims(x.shape, factor))
