"""Scales and zero points chosen at run time, for a whole tensor or for each row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, kernel, op, require_dtype

FROM_LEAST = kernel(
    "int8/qparams.wgsl",
    "qparams_tensor",
    ZERO="return clamp(params.low - round(least), params.low, params.high);",
)
# From the end of the range whose error is the smaller.
FROM_EITHER = kernel(
    "int8/qparams.wgsl",
    "qparams_rows",
    ZERO="""let from_least = (params.low + least) + (params.high + most) > 0.0;
    return round(clamp(select(params.high - most, params.low - least, from_least), params.low, params.high));""",
)
EPS = float(np.finfo(np.float32).eps)


@op("quantized_decomposed.choose_qparams.tensor")
class ChooseForTensor(Op):
    """(scale [1], zero point [1]) such that 0 and the tensor's range fit `low`..`high`."""

    def outputs(self, ctx: Context, x: Tensor, low: int, high: int, eps: float, *_: Any) -> list[Dims]:
        if not x.numel:
            raise InputError(f"{list(x.dims)} has no elements to choose a scale for")
        return [(1,), (1,)]

    def plan(
        self, ctx: Context, x: Tensor, low: int, high: int, eps: float, *_: Any, out: tuple[Tensor, Tensor]
    ) -> Iterable[Dispatch]:
        require_dtype("f32", x, out[0])
        require_dtype("i32", out[1])
        numbers = (float(low), float(high), float(eps))
        yield Dispatch(FROM_LEAST, groups=1, params=(1, x.numel, *numbers), reads=(x,), writes=out)

    def reference(self, x: np.ndarray, low: int, high: int, eps: float, *_: Any) -> tuple[np.ndarray, np.ndarray]:
        least, most = _range(x.reshape(1, -1))
        scale = np.maximum((most - least) / np.float32(high - low), np.float32(eps))
        zero = np.clip(low - np.round(least / scale), low, high)
        return scale[:, 0], zero[:, 0].astype(np.int64)


@op("quantized_decomposed.choose_qparams_per_token_asymmetric.default")
class ChooseForRows(Op):
    """(scale, zero point), each [..., 1], such that 0 and the row's range fit -128..127."""

    def outputs(self, ctx: Context, x: Tensor, *_: Any) -> list[Dims]:
        if not x.rank or not x.width:
            raise InputError(f"{list(x.dims)} has no rows to choose scales for")
        return [(*x.dims[:-1], 1)] * 2

    def plan(self, ctx: Context, x: Tensor, *_: Any, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        require_dtype("f32", x, out[0])
        require_dtype("i32", out[1])
        params = (x.rows, x.width, -128.0, 127.0, EPS)
        yield Dispatch(FROM_EITHER, groups=x.rows, params=params, reads=(x,), writes=out)

    def reference(self, x: np.ndarray, *_: Any) -> tuple[np.ndarray, np.ndarray]:
        least, most = _range(x)
        scale = np.maximum((most - least) / np.float32(255), np.float32(EPS))
        low, high = np.float32(-128), np.float32(127)
        from_least = (low + least / scale) + (high + most / scale) > 0
        zero = np.where(from_least, low - least / scale, high - most / scale)
        return scale, np.round(np.clip(zero, low, high)).astype(np.int64)


def _range(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of each row and 0, in float32 as in torch: zero points are rounded."""
    least, most = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    return np.minimum(least, 0).astype(np.float32), np.maximum(most, 0).astype(np.float32)
