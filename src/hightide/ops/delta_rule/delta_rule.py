"""Attention without keys to look back at: a state that each token fades, corrects and reads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Op, Tensor, ceil_div, kernel, op

LANES = 32


@op("llama.gated_delta_rule.default", family="delta_rule")
class GatedDeltaRule(Op):
    """Of every head a state [K, V], token after token: state = state * decay + k (v - state.T k) beta; out = state.T q.

    q and k are [B, H, S, K], v is [B, H, S, V], decay [B, H, S] or [B, H, S, K], beta [B, H, S]. Outputs are
    [B, H, S, V] and the last state (arXiv 2412.06464).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    beta: Tensor
    state: Tensor

    def outputs(self, ctx: Context) -> list[Dims]:
        q, k, v, state = self.q, self.k, self.v, self.state
        if q.rank != 4 or q.dims != k.dims or v.dims[:-1] != q.dims[:-1]:
            raise InputError(f"queries {list(q.dims)}, keys {list(k.dims)} and values {list(v.dims)} do not match")
        if state.dims != (*q.dims[:2], q.width, v.width):
            raise InputError(f"a state of {list(state.dims)} does not go with keys {list(k.dims)}")
        if self.decay.dims not in (q.dims, q.dims[:3]) or self.beta.dims != q.dims[:3]:
            raise InputError(f"decays of {list(self.decay.dims)} or betas of {list(self.beta.dims)} are not by token")
        return [v.dims, state.dims]

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        heads, tokens, keys, values = self.q.dims[0] * self.q.dims[1], self.q.dims[2], self.q.width, self.v.width
        if not self.state.numel:
            return
        yield kernel("delta_rule/delta_rule.wgsl", KEYS=keys, LANES=LANES, BY_KEY=self.decay.rank == 4).over(
            heads * ceil_div(values, LANES),
            **self.arguments(),
            out=out[0],
            last=out[1],
            heads=heads,
            tokens=tokens,
            values=values,
        )

    def flops(self, dispatch: Dispatch) -> float:
        return 7 * self.v.numel * self.q.width

    @staticmethod
    def reference(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, beta: np.ndarray, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        state, out = state.copy(), np.empty_like(v)
        fade = decay[..., None] if decay.ndim == 3 else decay
        for t in range(q.shape[2]):
            state *= fade[:, :, t, :, None]
            key, query = k[:, :, t, :, None], q[:, :, t, :, None]
            change = (v[:, :, t] - (state * key).sum(axis=-2)) * beta[:, :, t, None]
            state += key * change[:, :, None]
            out[:, :, t] = (state * query).sum(axis=-2)
        return out, state
