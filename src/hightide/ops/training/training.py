"""Training on the device: the loss and its gradient, gradients through 4-bit linears, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op
from hightide.ops.cost import distinct
from hightide.ops.linear.q4 import check_scales
from hightide.ops.linear.tiles import LANES, rows_per_thread


@op("et_vk.adamw_step.default", family="training")
class AdamwStep(Op):
    """One step, in place, which is also what it returns; the corrections are 1 - beta^step."""

    mutates = ("p", "m", "v")

    p: Tensor
    m: Tensor
    v: Tensor
    gradient: Tensor
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    correction1: float
    correction2: float

    def outputs(self, ctx: Context) -> list[Dims]:
        p = self.p
        if not p.dims == self.m.dims == self.v.dims == self.gradient.dims:
            raise InputError(f"moments or a gradient do not have the parameter's dims {list(p.dims)}")
        return [p.dims] * 3

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor, Tensor]) -> Iterable[Dispatch]:
        yield kernel("training/adamw.wgsl").over(
            ceil_div(self.p.numel, 256),
            gradient=self.gradient,
            p=self.p,
            m=self.m,
            v=self.v,
            p_out=out[0],
            m_out=out[1],
            v_out=out[2],
            numel=self.p.numel,
            decay=1 - self.lr * self.weight_decay,
            lr=self.lr,
            eps=self.eps,
            beta1=self.beta1,
            rest1=1 - self.beta1,
            correction1=self.correction1,
            beta2=self.beta2,
            rest2=1 - self.beta2,
            correction2=self.correction2,
        )

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        call: Any = cls.bound(dict(arguments))  # eleven arguments are easier to read as fields
        p, m, v, gradient = call.p, call.m, call.v, call.gradient
        m[...] = m * call.beta1 + gradient * (1 - call.beta1)
        v[...] = v * call.beta2 + gradient * gradient * (1 - call.beta2)
        step = (m / call.correction1) / (np.sqrt(v / call.correction2) + call.eps)
        p[...] = p * (1 - call.lr * call.weight_decay) - call.lr * step
        return p.copy(), m.copy(), v.copy()


@op("et_vk.fused_ce.default", family="training")
class CrossEntropy(Op):
    """(the mean loss over `n_valid` labels, its gradient); rows with a negative label do not count."""

    logits: Tensor
    labels: Tensor
    n_valid: float

    def outputs(self, ctx: Context) -> list[Dims]:
        logits, labels = self.logits, self.labels
        if logits.rank != 2 or labels.dims != logits.dims[:1] or not logits.width:
            raise InputError(f"labels of {list(labels.dims)} do not fit logits of {list(logits.dims)}")
        ctx.require_indices(labels, -(2**31), logits.width - 1, "label")
        return [(), logits.dims]

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        rows = self.logits.rows
        losses = ctx.scratch(rows * 4)
        yield kernel("training/cross_entropy.wgsl").over(
            rows,
            logits=self.logits,
            labels=self.labels,
            losses=losses,
            gradient=out[1],
            rows=rows,
            width=self.logits.width,
            n_valid=self.n_valid,
        )
        yield kernel("training/total.wgsl").over(1, x=losses, out=out[0], outputs=1, count=rows)

    @staticmethod
    def reference(logits: np.ndarray, labels: np.ndarray, n_valid: float) -> tuple[np.ndarray, np.ndarray]:
        counts, at = labels >= 0, np.maximum(labels, 0)
        most = logits.max(axis=-1, keepdims=True)
        powers = np.exp(logits - most)
        sums = powers.sum(axis=-1, keepdims=True)
        rows = np.arange(len(logits))
        losses = ((most + np.log(sums))[:, 0] - logits[rows, at]) / n_valid
        gradient = powers / sums
        gradient[rows, at] -= 1
        return np.where(counts, losses, 0).sum(), np.where(counts[:, None], gradient / n_valid, 0)


@op("et_vk.linear_q4gsw_backward.default", family="training")
class LinearQ4Backward(Op):
    """gradient @ dequantised(weight): through et_vk.linear_q4gsw to its input."""

    gradient: Tensor
    weight: Tensor
    scales: Tensor
    group: int

    def outputs(self, ctx: Context) -> list[Dims]:
        gradient, weight = self.gradient, self.weight
        if not gradient.rank or weight.rank != 2 or gradient.width != weight.dims[0]:
            raise InputError(f"a gradient of {list(gradient.dims)} does not fit a weight of {list(weight.dims)}")
        k = weight.dims[1] * 2
        check_scales(self.scales, gradient.width, k, self.group)
        return [(*gradient.dims[:-1], k)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        m, n, k = self.gradient.rows, self.gradient.width, out.width
        rows, shape = rows_per_thread(m)
        constants = {"ROWS": rows, "LANES": LANES, "WHOLE_WORDS": self.group % 8 == 0}
        yield kernel("training/q4_backward.wgsl", f"q4_backward_{shape}", **constants).over(
            ceil_div(ceil_div(m, rows) * ceil_div(k, 8), LANES),
            gradient=self.gradient,
            weight=self.weight,
            scales=self.scales,
            out=out,
            m=m,
            n=n,
            k=k,
            group=self.group,
            scale_row=self.scales.dims[1],
        )

    def flops(self, dispatch: Dispatch) -> float:
        return 2 * self.gradient.numel * sum(out.width for out in distinct(dispatch.writes))

    @staticmethod
    def reference(gradient: np.ndarray, weight: np.ndarray, scales: np.ndarray, group: int) -> np.ndarray:
        n, k = weight.shape[0], weight.shape[1] * 2
        values = np.stack([weight & 15, weight >> 4], axis=-1).reshape(n, k).astype(np.int8) - 8
        return gradient @ (values * _of_columns(scales, group, n, k)).astype(gradient.dtype)


def _of_columns(scales: np.ndarray, group: int, n: int, k: int) -> np.ndarray:
    """The scale of every element of a weight [n, k]."""
    return np.repeat(scales[:, :n].T, group, axis=1)[:, :k]


@op("et_vk.linear_dW.default", family="training")
class WeightGradient(Op):
    """gradient.T @ x over all rows: of a linear's weight."""

    gradient: Tensor
    x: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        gradient, x = self.gradient, self.x
        if not gradient.rank or not x.rank or gradient.rows != x.rows:
            raise InputError(f"a gradient of {list(gradient.dims)} does not fit an input of {list(x.dims)}")
        return [(gradient.width, x.width)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        n, k = out.dims
        groups = ceil_div(ceil_div(n, 4) * ceil_div(k, 4), 64)
        yield kernel("training/weight_gradient.wgsl").over(
            groups, gradient=self.gradient, x=self.x, out=out, m=self.x.rows, n=n, k=k
        )

    def flops(self, dispatch: Dispatch) -> float:
        return 2 * self.gradient.numel * self.x.width

    @staticmethod
    def reference(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
        rows = int(np.prod(x.shape[:-1]))
        return gradient.reshape(rows, gradient.shape[-1]).T @ x.reshape(rows, x.shape[-1])


@op("et_vk.q4gsw_requant.default", family="training")
class RequantQ4(Op):
    """Float weights [N, K] to the 4-bit codes of et_vk.linear_q4gsw, [N, (K + 1) / 2], by scales [groups, N]."""

    latent: Tensor
    scales: Tensor
    group: int

    def outputs(self, ctx: Context) -> list[Dims]:
        if self.latent.rank != 2:
            raise InputError(f"weights of {list(self.latent.dims)} are not a matrix")
        n, k = self.latent.dims
        check_scales(self.scales, n, k, self.group)
        return [(n, ceil_div(k, 2))]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        yield kernel("training/q4_requant.wgsl").over(
            ceil_div(out.numel, 256),
            latent=self.latent,
            scales=self.scales,
            out=out,
            numel=out.numel,
            k=self.latent.width,
            group=self.group,
            scale_row=self.scales.dims[1],
        )

    @staticmethod
    def reference(latent: np.ndarray, scales: np.ndarray, group: int) -> np.ndarray:
        n, k = latent.shape
        scale = _of_columns(scales, group, n, k).astype(np.float32)
        # In float32, as torch: at ties the type decides the code.
        quotient = np.divide(latent.astype(np.float32), scale, out=np.zeros((n, k), np.float32), where=scale != 0)
        codes = (np.clip(np.round(quotient), -8, 7) + 8).astype(np.uint8)
        if k % 2:
            codes = np.concatenate([codes, np.zeros((n, 1), np.uint8)], axis=1)
        return codes[:, ::2] | codes[:, 1::2] << 4
