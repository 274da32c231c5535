"""Rows turned and put into a KV cache, and attended to in the same dispatch where each is alone: a decode step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.ops.attention.attention import Attend, Rule, check_sinks
from hightide.ops.attention.attention_cost import Seen
from hightide.ops.attention.cache import RopeCache, RopeOp
from hightide.ops.attention.steps import Attention, attend, may_turn
from hightide.ops.contract import Context, Dispatch, Tensor, op
from hightide.ops.rows import rows_alike


class RopeAttendOp(RopeOp):
    """A `RopeOp`, and attention of the queries that it gives."""

    scale: float | None
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None

    def outputs(self, ctx: Context) -> list[Dims]:
        check_sinks(self.sinks, self.queries)
        return super().outputs(ctx)

    @property
    def queries(self) -> Tensor:
        """What has the dims of q; it is in no tensor of the graph."""
        return Tensor(self.qkv.value, (1, self.qkv.dims[1], self.heads, self.depth))

    def reads(self, dispatch: Dispatch) -> list[Tensor]:
        """The caches too, where the dispatch that attends to them writes a row first."""
        attends = "k" in dispatch.kernel.interface.write_names
        return super().reads(dispatch) + ([self.k_cache, self.v_cache] if attends else [])

    def attended(self, ctx: Context, out: Tensor, attentions: Sequence[Attention], alone: bool) -> Iterator[Dispatch]:
        """`alone`: the first attention has all rows, and none sees the key of another one."""
        if not out.numel:
            return
        turning = replace(attentions[0], turn=self.turn())
        if alone and not rows_alike(ctx.choices) and may_turn(ctx, turning):
            turned = list(attend(ctx, turning))
            if all(len(d.kernel.interface.binding_names) <= ctx.choices.traits.storage_buffers for d in turned):
                yield from turned
                return
        q = ctx.scratch(out.numel * 4)
        yield from self.turned(ctx, q)
        for attention in attentions:
            yield from attend(ctx, replace(attention, held_q=q))


@op("hightide.rope_attend.default", family="attention")
class RopeAttend(RopeAttendOp, RopeCache):
    """`RopeCache`, then `Attend` of the queries that it gives."""

    causal: bool

    @property
    def rule(self) -> Rule:
        return Rule(self.causal, self.scale, self.window, self.softcap, self.sinks)

    def seen(self, env: Env) -> Seen:
        seen = self.rule.seen(self.queries, self.k_cache, self.v_cache, self.position, env)
        return replace(seen, tables=(self.cos, self.sin))

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        attention = self.rule.over_cache(self.queries, self.k_cache, self.v_cache, out, self.position)
        return self.attended(ctx, out, [attention], alone=self.qkv.dims[1] == 1)

    @classmethod
    def evaluate(cls, arguments: Mapping[str, Any]) -> np.ndarray:
        q = super().evaluate(arguments)
        names = ("k_cache", "v_cache", "position", "causal", "scale", "window", "softcap", "sinks")
        return Attend.evaluate({"q": q, **{name: arguments[name] for name in names if name in arguments}})
