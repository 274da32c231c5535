"""What attention costs in a run: it looks at the part of the caches that is filled, and follows the position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hightide.graph.symbols import Env, evaluate
from hightide.ops.contract import Op, expr_of
from hightide.ops.cost import Cost, distinct, same, share_of
from hightide.ops.kernel import Dispatch, Int, Scratch, Tensor

SOFTMAX = 5  # operations per element of a softmax


@dataclass(frozen=True)
class Seen:
    """What a call looks at in a run."""

    k: Tensor
    v: Tensor | None
    heads: int
    tokens: int
    keys: int
    capacity: int
    pairs: int  # (query, key) pairs
    first: int = 0  # the first key that any query sees
    tables: tuple[Tensor, ...] = ()  # of which a row per token is read
    beside: tuple[Tensor, ...] = ()  # caches of what belongs to k and v
    cached: bool = True  # k and v are caches [1, C, H, D]; else they are [B, H, S, D]


def seen_in_cache(
    x: Tensor, heads: int, k: Tensor, v: Tensor | None, position: Int, env: Env, causal: bool = True, window: int = 0
) -> Seen:
    """What `heads` queries for each row of x [1, S, ...] see of the caches."""
    tokens, at = x.dims[1], evaluate(expr_of(position), env)
    keys = at + tokens
    first = max(0, at - window + 1) if window else 0
    return Seen(k, v, heads, tokens, keys, k.dims[1], visible_pairs(tokens, at, keys, causal, window), first)


def visible_pairs(tokens: int, position: int, keys: int, causal: bool, window: int) -> int:
    """How many (query, key) pairs attention looks at."""
    total = 0
    for at in range(position, position + tokens):
        last = min(at + 1, keys) if causal else keys
        total += last - (max(0, at - window + 1) if window else 0)
    return total


class AttentionOp(Op):
    """An op whose cost follows from what it sees."""

    def seen(self, env: Env) -> Seen:
        raise NotImplementedError

    def reads(self, dispatch: Dispatch) -> list[Tensor]:
        return list(distinct(dispatch.reads))

    def cost(self, dispatch: Dispatch, env: Env, scratch: Mapping[Scratch, int]) -> Cost:
        """Which part of attention a dispatch is shows in what it reads and writes."""
        seen = self.seen(env)
        reads, writes = self.reads(dispatch), list(distinct(dispatch.writes))
        # Scratch holds what parts of the context give: as many as there are keys for.
        live = seen.keys / max(1, seen.capacity)
        read = sum(scratch.get(s, 0) for s in dispatch.reads if isinstance(s, Scratch)) * live
        written = sum(scratch.get(s, 0) for s in dispatch.writes if isinstance(s, Scratch)) * live
        for tensor in reads:
            if seen.cached and same(tensor, seen.k, seen.v, *seen.beside):
                read += tensor.nbytes * (seen.keys - seen.first) / max(1, seen.capacity)
            elif same(tensor, *seen.tables):
                read += share_of(tensor, seen.tokens, tensor.rows)
            else:
                read += tensor.nbytes
        for tensor in writes:
            in_cache = seen.cached and same(tensor, seen.k, seen.v)
            written += tensor.nbytes * (seen.tokens / max(1, seen.capacity) if in_cache else 1)
        products = [t.width for t in (seen.k, seen.v) if t is not None and same(t, *reads)]
        if products:
            flops = seen.heads * seen.pairs * (2 * sum(products) + SOFTMAX)
        else:  # a cache update, a rotation, or parts joined: three operations per word that is new
            flops = 3 * sum(t.numel for t in reads if t.value.constant is None) + 3 * int(read) // 4 * (not reads)
        return Cost(math.ceil(read), math.ceil(written), flops)
