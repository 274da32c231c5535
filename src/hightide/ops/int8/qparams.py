"""Scales and zero points chosen at run time, for a whole tensor or for each row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, kernel, op

EPS = float(np.finfo(np.float32).eps)


@op("quantized_decomposed.choose_qparams.tensor", family="quantize")
class ChooseForTensor(Op):
    """(scale [1], zero point [1]) such that 0 and the tensor's range fit `low`..`high`."""

    x: Tensor
    low: int
    high: int
    eps: float
    dtype: int | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        if not self.x.numel:
            raise InputError(f"{list(self.x.dims)} has no elements to choose a scale for")
        return [(1,), (1,)]

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        yield kernel("int8/qparams.wgsl", "qparams_tensor", EITHER=False).over(
            1,
            x=self.x,
            scales=out[0],
            zeros=out[1],
            rows=1,
            width=self.x.numel,
            low=self.low,
            high=self.high,
            eps=self.eps,
        )

    @staticmethod
    def reference(x: np.ndarray, low: int, high: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
        least, most = _range(x.reshape(1, -1))
        scale = np.maximum((most - least) / np.float32(high - low), np.float32(eps))
        zero = np.clip(low - np.round(least / scale), low, high)
        return scale[:, 0], zero[:, 0].astype(np.int64)


@op("quantized_decomposed.choose_qparams_per_token_asymmetric.default", family="quantize")
class ChooseForRows(Op):
    """(scale, zero point), each [..., 1], such that 0 and the row's range fit -128..127."""

    x: Tensor
    dtype: int | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        if not self.x.rank or not self.x.width:
            raise InputError(f"{list(self.x.dims)} has no rows to choose scales for")
        return [(*self.x.dims[:-1], 1)] * 2

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        x = self.x
        yield kernel("int8/qparams.wgsl", "qparams_rows", EITHER=True).over(
            x.rows, x=x, scales=out[0], zeros=out[1], rows=x.rows, width=x.width, low=-128, high=127, eps=EPS
        )

    @staticmethod
    def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
