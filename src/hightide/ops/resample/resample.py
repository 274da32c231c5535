"""Images at other sizes and places: upsampling, sampling at a grid of coordinates, pixel (un)shuffling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.conv.geometry import per_dim
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, ceil_div, kernel, op, require_dtype, strides_of
from hightide.ops.movement.strided import move

NO_CONTEXT = Context({}, {}, 0)  # for references, whose arguments are plain numbers
EDGES = "clamp({place}, vec2<f32>(), size - 1.0)"
GRID = "@group(0) @binding(3) var<storage, read> grid: array<vec2<f32>>;"


def check_image(dims: Dims) -> None:
    if len(dims) != 4 or 0 in dims[-3:]:
        raise InputError(f"{list(dims)} is not an image: it must be [N, C, H, W], only N may be 0")


def upsampled(ctx: Context, dims: Dims, size: Any, factors: tuple[float, ...] | None) -> Dims:
    """Height and width as torch has them: given, or the live ones times the factors, cut to whole numbers."""
    check_image(dims)
    if (size is None) == (factors is None):
        raise InputError("exactly one of the output size and the scale factors must be given")
    if factors is None:
        return per_dim(ctx, size, 2, "output_size", least=1)
    if len(factors) != 2:
        raise InputError(f"the scale factors are {list(factors)}: one for the height and one for the width")
    sizes = tuple(int(n * float(f)) for n, f in zip(dims[-2:], factors, strict=True))
    if min(sizes) < 1:
        raise InputError(f"an image of {list(dims[-2:])} scaled by {list(factors)} has no pixels")
    return sizes


class Upsample(Op):
    """An image at another size; factors, if given, also say how far apart the places are."""

    def outputs(self, ctx: Context, x: Tensor, size: Any, *args: Any) -> list[Dims]:
        _, factors = self.settings(*args)
        return [(*x.dims[:2], *upsampled(ctx, x.dims, size, factors))]

    def plan(self, ctx: Context, x: Tensor, size: Any, *args: Any, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", x, out)
        yield sample(x, None, out, self.place(*args), self.sampler, self.scales(x.dims, out.dims, *args))

    def scales(self, dims: Dims, out_dims: Dims, *args: Any) -> tuple[float, float]:
        """Input pixels per output pixel."""
        align, factors = self.settings(*args)
        by_y, by_x = factors or (None, None)
        return self.scale(dims[-2], out_dims[-2], align, by_y), self.scale(dims[-1], out_dims[-1], align, by_x)

    def scale(self, size: int, out_size: int, align: bool, factor: float | None) -> float:
        if align:
            return (size - 1) / (out_size - 1) if out_size > 1 else 0.0
        if out_size in (size, self.exact * size):  # torch then forgets the factor, which may be no whole number
            return size / out_size
        return 1 / factor if factor and factor > 0 else size / out_size

    sampler: str
    exact: int  # the enlargement at which the factor says no more than the sizes

    def settings(self, *args: Any) -> tuple[bool, tuple[float, ...] | None]:
        """(align_corners, scale factors)"""
        raise NotImplementedError

    def place(self, *args: Any) -> str:
        raise NotImplementedError


@op("aten.upsample_nearest2d.vec")
class UpsampleNearest(Upsample):
    sampler, exact = "nearest", 2

    def settings(self, *args: Any) -> tuple[bool, tuple[float, ...] | None]:
        return False, args[0] if args else None

    def place(self, *args: Any) -> str:
        return f"let place = {EDGES.format(place='floor(at * params.scale)')};"

    def reference(self, x: np.ndarray, size: Any, *args: Any) -> np.ndarray:
        out_size = upsampled(NO_CONTEXT, x.shape, size, self.settings(*args)[1])
        rows, columns = (
            np.minimum(np.floor(np.arange(m, dtype=np.float32) * np.float32(scale)).astype(int), n - 1)
            for m, n, scale in zip(out_size, x.shape[-2:], self.scales(x.shape, out_size, *args), strict=True)
        )
        return x[..., rows[:, None], columns]


@op("aten.upsample_bilinear2d.vec")
class UpsampleBilinear(Upsample):
    sampler, exact = "bilinear", 1

    def settings(self, *args: Any) -> tuple[bool, tuple[float, ...] | None]:
        return bool(args[0]), args[1] if len(args) > 1 else None

    def place(self, *args: Any) -> str:
        place = "at * params.scale" if args[0] else "(at + 0.5) * params.scale - 0.5"
        return f"let place = {EDGES.format(place=place)};"

    def reference(self, x: np.ndarray, size: Any, *args: Any) -> np.ndarray:
        out_size = upsampled(NO_CONTEXT, x.shape, size, self.settings(*args)[1])
        half = 0.0 if args[0] else 0.5
        rows, columns = (
            np.clip((np.arange(m, dtype=x.dtype) + half) * x.dtype.type(scale) - half, 0, n - 1)
            for m, n, scale in zip(out_size, x.shape[-2:], self.scales(x.shape, out_size, *args), strict=True)
        )
        places = np.broadcast_arrays(rows[:, None], columns)
        return mix(x, *(np.broadcast_to(p, (len(x), *out_size)) for p in places))


@op("aten.grid_sampler_2d.default")
class GridSampler(Op):
    """The image at places that a grid [N, H, W, (x, y)] gives, from -1 to 1 over the image."""

    def outputs(
        self, ctx: Context, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool
    ) -> list[Dims]:
        if x.rank != 4 or 0 in x.dims[1:]:
            check_image(x.dims)
        if grid.rank != 4 or grid.width != 2 or grid.dims[0] != x.dims[0]:
            raise InputError(f"a grid of {list(grid.dims)} for {x.dims[0]} images: it must be [N, H, W, 2]")
        return [(*x.dims[:2], *grid.dims[1:3])]

    def plan(
        self, ctx: Context, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool, *, out: Tensor
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x, grid, out)
        if mode not in (0, 1) or padding not in (0, 1, 2):
            raise UnsupportedError(f"interpolation mode {mode} with padding mode {padding} has no kernel")
        if not out.numel:
            return
        spread = "from_low * 0.5 * (size - 1.0)" if align_corners else "(from_low * size - 1.0) * 0.5"
        low, span = ("0.0", "size - 1.0") if align_corners else ("-0.5", "size")
        place = {
            0: "there",
            1: EDGES.format(place="there"),
            2: EDGES.format(place=f"reflect_at(there, vec2<f32>({low}), {span})"),
        }[padding]
        coordinates = "grid[image / params.channels * width * height + i % (width * height)].yx"
        lines = f"let from_low = {coordinates} + 1.0;\n    let there = {spread};\n    let place = {place};"
        yield sample(x, grid, out, lines, "nearest" if mode else "bilinear", (0.0, 0.0))

    def reference(self, x: np.ndarray, grid: np.ndarray, mode: int, padding: int, align_corners: bool) -> np.ndarray:
        if mode not in (0, 1):
            raise UnsupportedError(f"interpolation mode {mode} has no reference")
        places = []
        for at, n in ((grid[..., 1], x.shape[2]), (grid[..., 0], x.shape[3])):
            place = (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2
            if padding == 2:
                place = _reflect(place, 0 if align_corners else -0.5, n - 1 if align_corners else n)
            places.append(np.clip(place, 0, n - 1) if padding else place)
        if mode == 1:
            return pixels(x, *(np.round(p) for p in places))
        return mix(x, *places)


def _reflect(place: np.ndarray, low: float, span: float) -> np.ndarray:
    if not span:
        return np.zeros_like(place)
    distance = np.abs(place - low)
    rest, turns = np.fmod(distance, span), np.floor(distance / span)
    return low + np.where(turns % 2 == 0, rest, span - rest)


def pixels(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """x at whole places [N, H, W], zero where there is no pixel."""
    height, width = x.shape[-2:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    row, column = (np.where(inside, p, 0).astype(int)[:, None] for p in (rows, columns))
    batch, channel = np.arange(len(x))[:, None, None, None], np.arange(x.shape[1])[:, None, None]
    return np.where(inside[:, None], x[batch, channel, row, column], 0).astype(x.dtype)


def mix(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """x between the four pixels around each place [N, H, W]."""
    top, left = np.floor(rows), np.floor(columns)
    down, right = (rows - top)[:, None], (columns - left)[:, None]
    above = (1 - right) * pixels(x, top, left) + right * pixels(x, top, left + 1)
    below = (1 - right) * pixels(x, top + 1, left) + right * pixels(x, top + 1, left + 1)
    return ((1 - down) * above + down * below).astype(x.dtype)


def sample(
    x: Tensor, grid: Tensor | None, out: Tensor, place: str, sampler: str, scale: tuple[float, float]
) -> Dispatch:
    return Dispatch(
        kernel(
            "resample/resample.wgsl",
            f"grid_{sampler}" if grid else f"upsample_{sampler}",
            GRID=GRID if grid else "",
            OUT=4 if grid else 3,
            PLACE=place,
            SAMPLE=sampler,
        ),
        groups=ceil_div(out.numel, 64),
        params=(out.numel, x.dims[1], *x.dims[-2:], *out.dims[-2:], *scale),
        reads=(x, grid) if grid else (x,),
        writes=(out,),
    )


@op("aten.pixel_shuffle.default")
class PixelShuffle(Op):
    """[.., C r r, H, W] as [.., C, H r, W r]: channels become pixels."""

    def outputs(self, ctx: Context, x: Tensor, factor: int) -> list[Dims]:
        if x.rank < 3 or factor < 1 or x.dims[-3] % (factor * factor):
            raise InputError(
                f"{list(x.dims)} cannot be shuffled by {factor}: channels must be a multiple of its square"
            )
        *lead, channels, height, width = x.dims
        return [(*lead, channels // (factor * factor), height * factor, width * factor)]

    def plan(self, ctx: Context, x: Tensor, factor: int, *, out: Tensor) -> Iterable[Dispatch]:
        boxed, order = _blocks(out.dims, factor)
        strides = strides_of(tuple(boxed[d] for d in order))  # of x, [images, r, r, H, W]
        yield move(x, out, boxed, tuple(strides[order.index(d)] for d in range(5)), strides_of(boxed))

    def reference(self, x: np.ndarray, factor: int) -> np.ndarray:
        *lead, channels, height, width = x.shape
        blocks = x.reshape(*lead, channels // (factor * factor), factor, factor, height, width)
        moved = np.moveaxis(blocks, (-4, -3), (-3, -1))
        return moved.reshape(*lead, channels // (factor * factor), height * factor, width * factor)


@op("aten.pixel_unshuffle.default")
class PixelUnshuffle(Op):
    """[.., C, H r, W r] as [.., C r r, H, W]: pixels become channels."""

    def outputs(self, ctx: Context, x: Tensor, factor: int) -> list[Dims]:
        if x.rank < 3 or factor < 1 or x.dims[-1] % factor or x.dims[-2] % factor:
            raise InputError(f"{list(x.dims)} cannot be unshuffled by {factor}: height and width must be multiples")
        *lead, channels, height, width = x.dims
        return [(*lead, channels * factor * factor, height // factor, width // factor)]

    def plan(self, ctx: Context, x: Tensor, factor: int, *, out: Tensor) -> Iterable[Dispatch]:
        boxed, order = _blocks(x.dims, factor)
        strides = strides_of(boxed)
        box = tuple(boxed[d] for d in order)
        yield move(x, out, box, tuple(strides[d] for d in order), strides_of(box))

    def reference(self, x: np.ndarray, factor: int) -> np.ndarray:
        *lead, channels, height, width = x.shape
        blocks = x.reshape(*lead, channels, height // factor, factor, width // factor, factor)
        moved = np.moveaxis(blocks, (-3, -1), (-4, -3))
        return moved.reshape(*lead, channels * factor * factor, height // factor, width // factor)


def _blocks(dims: Dims, factor: int) -> tuple[Dims, tuple[int, ...]]:
    """An image in blocks [images, H, r, W, r], and the order of its dims when pixels of a block are channels."""
    *lead, height, width = dims
    return (int(np.prod(lead)), height // factor, factor, width // factor, factor), (0, 2, 4, 1, 3)
