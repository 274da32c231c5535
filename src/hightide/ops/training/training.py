"""Training on the device: the loss and its gradient, gradients through 4-bit linears, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.legacy import Context, Dispatch, Op, Tensor, ceil_div, kernel, op, require_dtype
from hightide.ops.linear.tiles import LANES, rows_per_thread

ADAMW = kernel("training/adamw.wgsl")
CROSS_ENTROPY = kernel("training/cross_entropy.wgsl")
TOTAL = kernel("training/total.wgsl")
WEIGHT_GRADIENT = kernel("training/weight_gradient.wgsl")
REQUANT = kernel("training/q4_requant.wgsl")
# The scales of columns 0, 2, 4 and 6 from `column` on: one for all where groups are whole words.
ONE_SCALE = "return vec4<f32>(scale_at(column, n));"
FOUR_SCALES = """return vec4<f32>(scale_at(column, n), scale_at(column + 2u, n),
                     scale_at(column + 4u, n), scale_at(column + 6u, n));"""


@op("et_vk.adamw_step.default")
class AdamwStep(Op):
    """One step, in place, which is also what it returns; the corrections are 1 - beta^step."""

    mutates = (0, 1, 2)

    def outputs(self, ctx: Context, p: Tensor, m: Tensor, v: Tensor, gradient: Tensor, *_: float) -> list[Dims]:
        if not p.dims == m.dims == v.dims == gradient.dims:
            raise InputError(f"moments or a gradient do not have the parameter's dims {list(p.dims)}")
        return [p.dims] * 3

    def plan(
        self,
        ctx: Context,
        p: Tensor,
        m: Tensor,
        v: Tensor,
        gradient: Tensor,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        correction1: float,
        correction2: float,
        *,
        out: tuple[Tensor, Tensor, Tensor],
    ) -> Iterable[Dispatch]:
        require_dtype("f32", p, m, v, gradient, *out)
        rates = (1 - lr * weight_decay, beta1, 1 - beta1, beta2, 1 - beta2, correction1, correction2, eps, lr)
        yield Dispatch(
            ADAMW,
            groups=ceil_div(p.numel, 256),
            params=(p.numel, *(float(rate) for rate in rates)),
            reads=(gradient,),
            writes=(p, m, v, *out),
        )

    def reference(
        self,
        p: np.ndarray,
        m: np.ndarray,
        v: np.ndarray,
        gradient: np.ndarray,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        correction1: float,
        correction2: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        m[...] = m * beta1 + gradient * (1 - beta1)
        v[...] = v * beta2 + gradient * gradient * (1 - beta2)
        step = (m / correction1) / (np.sqrt(v / correction2) + eps)
        p[...] = p * (1 - lr * weight_decay) - lr * step
        return p.copy(), m.copy(), v.copy()


@op("et_vk.fused_ce.default")
class CrossEntropy(Op):
    """(the mean loss over `n_valid` labels, its gradient); rows with a negative label do not count."""

    def outputs(self, ctx: Context, logits: Tensor, labels: Tensor, n_valid: float) -> list[Dims]:
        if logits.rank != 2 or labels.dims != logits.dims[:1] or not logits.width:
            raise InputError(f"labels of {list(labels.dims)} do not fit logits of {list(logits.dims)}")
        ctx.require_indices(labels, -(2**31), logits.width - 1, "label")
        return [(), logits.dims]

    def plan(
        self, ctx: Context, logits: Tensor, labels: Tensor, n_valid: float, *, out: tuple[Tensor, Tensor]
    ) -> Iterable[Dispatch]:
        loss, gradient = out
        require_dtype("f32", logits, loss, gradient)
        require_dtype("i32", labels)
        losses = ctx.scratch(logits.rows * 4)
        yield Dispatch(
            CROSS_ENTROPY,
            groups=logits.rows,
            params=(logits.rows, logits.width, float(n_valid)),
            reads=(logits, labels),
            writes=(losses, gradient),
        )
        yield Dispatch(TOTAL, groups=1, params=(1, logits.rows), reads=(losses,), writes=(loss,))

    def reference(self, logits: np.ndarray, labels: np.ndarray, n_valid: float) -> tuple[np.ndarray, np.ndarray]:
        counts, at = labels >= 0, np.maximum(labels, 0)
        most = logits.max(axis=-1, keepdims=True)
        powers = np.exp(logits - most)
        sums = powers.sum(axis=-1, keepdims=True)
        rows = np.arange(len(logits))
        losses = ((most + np.log(sums))[:, 0] - logits[rows, at]) / n_valid
        gradient = powers / sums
        gradient[rows, at] -= 1
        return np.where(counts, losses, 0).sum(), np.where(counts[:, None], gradient / n_valid, 0)


@op("et_vk.linear_q4gsw_backward.default")
class LinearQ4Backward(Op):
    """gradient @ dequantised(weight): through et_vk.linear_q4gsw to its input."""

    def outputs(self, ctx: Context, gradient: Tensor, weight: Tensor, scales: Tensor, group: int) -> list[Dims]:
        if not gradient.rank or weight.rank != 2 or gradient.width != weight.dims[0]:
            raise InputError(f"a gradient of {list(gradient.dims)} does not fit a weight of {list(weight.dims)}")
        k = weight.dims[1] * 2
        check_scales(scales, gradient.width, k, group)
        return [(*gradient.dims[:-1], k)]

    def plan(
        self, ctx: Context, gradient: Tensor, weight: Tensor, scales: Tensor, group: int, *, out: Tensor
    ) -> Iterable[Dispatch]:
        require_dtype("f32", gradient, scales, out)
        require_dtype("u8", weight)
        m, n, k = gradient.rows, gradient.width, out.width
        rows, shape = rows_per_thread(m)
        row_tiles, column_tiles = ceil_div(m, rows), ceil_div(k, 8)
        yield Dispatch(
            kernel(
                "training/q4_backward.wgsl",
                f"q4_backward_{shape}",
                ROWS=rows,
                LANES=LANES,
                SCALES=ONE_SCALE if group % 8 == 0 else FOUR_SCALES,
            ),
            groups=ceil_div(row_tiles * column_tiles, LANES),
            params=(m, n, k, weight.dims[1], group, scales.dims[1], row_tiles, column_tiles),
            reads=(gradient, weight, scales),
            writes=(out,),
        )

    def reference(self, gradient: np.ndarray, weight: np.ndarray, scales: np.ndarray, group: int) -> np.ndarray:
        n, k = weight.shape[0], weight.shape[1] * 2
        values = np.stack([weight & 15, weight >> 4], axis=-1).reshape(n, k).astype(np.int8) - 8
        return gradient @ (values * np.repeat(scales[:, :n].T, group, axis=1)[:, :k]).astype(gradient.dtype)


def check_scales(scales: Tensor, n: int, k: int, group: int) -> None:
    """Scales [groups of a row, rows] may be padded."""
    if scales.rank != 2 or group < 1 or ceil_div(k, group) > scales.dims[0] or n > scales.dims[1]:
        raise InputError(f"scales of {list(scales.dims)} do not cover {n} rows of {k} in groups of {group}")


@op("et_vk.linear_dW.default")
class WeightGradient(Op):
    """gradient.T @ x over all rows: of a linear's weight."""

    def outputs(self, ctx: Context, gradient: Tensor, x: Tensor) -> list[Dims]:
        if not gradient.rank or not x.rank or gradient.rows != x.rows:
            raise InputError(f"a gradient of {list(gradient.dims)} does not fit an input of {list(x.dims)}")
        return [(gradient.width, x.width)]

    def plan(self, ctx: Context, gradient: Tensor, x: Tensor, *, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", gradient, x, out)
        n, k = out.dims
        row_tiles, column_tiles = ceil_div(n, 4), ceil_div(k, 4)
        yield Dispatch(
            WEIGHT_GRADIENT,
            groups=ceil_div(row_tiles * column_tiles, 64),
            params=(x.rows, n, k, row_tiles, column_tiles),
            reads=(gradient, x),
            writes=(out,),
        )

    def reference(self, gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
        rows = int(np.prod(x.shape[:-1]))
        return gradient.reshape(rows, gradient.shape[-1]).T @ x.reshape(rows, x.shape[-1])


@op("et_vk.q4gsw_requant.default")
class RequantQ4(Op):
    """Float weights [N, K] to the 4-bit codes of et_vk.linear_q4gsw, [N, (K + 1) / 2], by scales [groups, N]."""

    def outputs(self, ctx: Context, latent: Tensor, scales: Tensor, group: int) -> list[Dims]:
        if latent.rank != 2:
            raise InputError(f"weights of {list(latent.dims)} are not a matrix")
        n, k = latent.dims
        check_scales(scales, n, k, group)
        return [(n, (k + 1) // 2)]

    def plan(self, ctx: Context, latent: Tensor, scales: Tensor, group: int, *, out: Tensor) -> Iterable[Dispatch]:
        require_dtype("f32", latent, scales)
        require_dtype("u8", out)
        yield Dispatch(
            REQUANT,
            groups=ceil_div(out.numel, 256),
            params=(out.numel, out.width, latent.width, group, scales.dims[1]),
            reads=(latent, scales),
            writes=(out,),
        )

    def reference(self, latent: np.ndarray, scales: np.ndarray, group: int) -> np.ndarray:
        n, k = latent.shape
        scale = np.repeat(scales[:, :n].T, group, axis=1)[:, :k].astype(np.float32)
        # In float32, as torch: at ties the type decides the code.
        quotient = np.divide(latent.astype(np.float32), scale, out=np.zeros((n, k), np.float32), where=scale != 0)
        codes = (np.clip(np.round(quotient), -8, 7) + 8).astype(np.uint8)
        if k % 2:
            codes = np.concatenate([codes, np.zeros((n, 1), np.uint8)], axis=1)
        return codes[:, ::2] | codes[:, 1::2] << 4
