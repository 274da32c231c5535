"""Mixtures of experts: which experts a token takes, and what they make of it. Nothing is read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.graph.values import Dims
from hightide.ops.blocks.dispatch import BLOCK, expert_linear
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import Context, Dispatch, Op, Scratch, Tensor, ceil_div, kernel, op
from hightide.ops.cost import largest, same, share_of
from hightide.ops.linear.epilogue import Epilogue, Experts, Product, finished, store_apart
from hightide.ops.linear.linear import Weight, parts_of
from hightide.ops.rows import row_lanes, rows_alike

SCORINGS = ("softmax", "sigmoid")
MOST_EXPERTS = 1024  # that the workgroup memory of route.wgsl and group.wgsl holds
FEW_ROWS = 2  # of an expert on average: with more, rows of one expert share tiles


@op("hightide.route_experts.default", family="experts")
class RouteExperts(Op):
    """The `used` experts with the highest scores of x [..., experts], the highest first, and the share of each.

    Shares are the softmax of all scores, or their sigmoids; `normalized` to a sum of 1, then times `scale`. With a bias
    [experts] those are chosen whose score (its sigmoid) plus bias is highest. With `groups`, experts come from the
    `groups_used` best of that many groups of neighbours: by the sum of their two best experts, or by the best one where
    shares are a softmax.
    """

    x: Tensor
    used: int
    bias: Tensor | None = None
    scoring: str = "softmax"
    normalized: bool = True
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1

    def outputs(self, ctx: Context) -> list[Dims]:
        count = self.x.width
        if not self.x.rank or not 1 <= self.used <= count or self.scoring not in SCORINGS:
            raise InputError(f"{self.used} of {count} experts cannot be chosen by {self.scoring!r}")
        if count > MOST_EXPERTS:
            raise UnsupportedError(f"a choice among {count} experts has no kernel; {MOST_EXPERTS} are the most")
        if self.bias is not None and self.bias.dims != (count,):
            raise InputError(f"a bias of {list(self.bias.dims)} does not fit {count} experts")
        groups, used = self.groups, self.groups_used
        if groups > 1 and count < 2 * groups:
            raise InputError(f"{count} experts in {groups} groups are not two in each")
        if groups < 1 or count % groups or not 1 <= used <= groups or self.used > count // groups * used:
            raise InputError(f"{self.used} of {count} experts cannot be chosen from {used} of {groups} groups")
        dims = (*self.x.dims[:-1], self.used)
        return [dims, dims]

    def plan(self, ctx: Context, out: tuple[Tensor, Tensor]) -> Iterable[Dispatch]:
        if not self.x.rows:
            return
        yield kernel(
            "experts/route.wgsl",
            "route_experts",
            COUNT=self.x.width,
            USED=self.used,
            BIAS=self.bias is not None,
            SCORING=self.scoring,
            NORMALIZED=self.normalized,
            GROUPS=self.groups,
            GROUPS_USED=self.groups_used,
            BEST_TWO=self.scoring == "sigmoid",
            LANES=row_lanes(ctx),
        ).over(self.x.rows, x=self.x, bias=self.bias, chosen=out[0], shares=out[1], rows=self.x.rows, scale=self.scale)

    @staticmethod
    def reference(
        x: np.ndarray,
        used: int,
        bias: np.ndarray | None,
        scoring: str,
        normalized: bool,
        scale: float,
        groups: int,
        groups_used: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        every = 1 / (1 + np.exp(-x))
        by = x if bias is None else (every if scoring == "sigmoid" else x) + bias
        if groups > 1:
            ranked = every if scoring == "sigmoid" and bias is None else by
            grouped = ranked.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
            best = np.sort(grouped, axis=-1)[..., -2 if scoring == "sigmoid" else -1 :].sum(axis=-1)
            taken = np.argsort(-best, axis=-1, kind="stable")[..., :groups_used]
            allowed = (taken[..., None] == np.arange(groups)).any(axis=-2)
            by = np.where(np.repeat(allowed, x.shape[-1] // groups, axis=-1), by, -np.inf)
        chosen = np.argsort(-by, axis=-1, kind="stable")[..., :used].astype(np.int32)
        if scoring == "softmax":
            every = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
            every = every / every.sum(axis=-1, keepdims=True)
        shares = np.take_along_axis(every, chosen, axis=-1)
        if normalized:
            shares = shares / (shares.sum(axis=-1, keepdims=True) + 2.0**-66)
        return chosen, shares * scale


@op("hightide.experts.default", family="experts")
class ExpertLayers(Op):
    """The sum over a token's experts of share * (activation(x @ gate.T) * (x @ up.T)) @ down.T.

    x [..., K]; chosen and shares [..., used]; gate_up [experts, 2 F, K] has the rows of gate and then of up, or of the
    gate alone where there is `up` [experts, F, K]; down [experts, N, F]. Weights are in GGUF's blocks, in parts by
    experts where they are too large to bind. Biases [experts, rows] are of whole weights.
    """

    x: Tensor
    chosen: Tensor
    shares: Tensor
    gate_up: Weight
    down: Weight
    up: Weight | None = None
    gate_up_bias: Tensor | None = None
    up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    activation: str = "silu"

    def outputs(self, ctx: Context) -> list[Dims]:
        x, chosen = self.x, self.chosen
        if x.rank < 2 or chosen.dims[:-1] != x.dims[:-1] or self.shares.dims != chosen.dims or not chosen.width:
            raise InputError(
                f"experts {list(chosen.dims)} with shares {list(self.shares.dims)} do not fit {list(x.dims)}"
            )
        count, columns = _checked(self.gate_up, x.width)
        hidden = columns if self.up is not None else columns // 2
        _, n = _checked(self.down, hidden, count)
        Epilogue(activation=self.activation).check((2 * hidden if self.up is not None else columns,))
        if self.up is not None and _checked(self.up, x.width, count)[1] != hidden:
            raise InputError(f"gates of {hidden} columns do not go with ups of {list(parts_of(self.up)[0].dims)}")
        biases = ((self.gate_up_bias, columns), (self.up_bias, hidden), (self.down_bias, n))
        for bias, rows in biases:
            if bias is not None and bias.dims != (count, rows):
                raise InputError(f"a bias of {list(bias.dims)} does not fit {count} experts of {rows} columns")
        ctx.require_indices(chosen, 0, count - 1, "experts")
        return [(*x.dims[:-1], n)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        rows, gate_up, down = self.chosen.numel, parts_of(self.gate_up), parts_of(self.down)
        count = sum(part.dims[0] for part in gate_up)
        grouped = rows > FEW_ROWS * count and not rows_alike(ctx.choices)
        experts = Experts(count, self.chosen.width, "grouped" if grouped else "gathered", self.chosen)
        hidden = down[0].width
        inner = ctx.scratch(rows * hidden * 4)
        if self.up is None:
            epilogue = Epilogue(self.gate_up_bias, activation=self.activation, experts=experts.route)
            product = Product(self.x, rows, self.x.width, epilogue, inner, hidden, experts=experts)
            yield from expert_linear(ctx, gate_up, product)
        else:
            yield from self._gate_and_up(ctx, experts, inner, rows, hidden)
        each = Experts(count, 1, experts.route, self.chosen, lists=experts.lists)
        ends = Epilogue(self.down_bias, experts=experts.route)
        made = ctx.scratch(rows * out.width * 4)
        yield from expert_linear(ctx, down, Product(inner, rows, hidden, ends, made, out.width, experts=each))
        vec4 = out.width % 4 == 0
        width = out.width // 4 if vec4 else out.width
        yield kernel("experts/sum.wgsl", "sum_experts", VEC4=vec4).over(
            ceil_div(out.rows * width, 64),
            y=made,
            shares=self.shares,
            out=out,
            tokens=out.rows,
            width=width,
            used=self.chosen.width,
        )

    def _gate_and_up(
        self, ctx: Context, experts: Experts, inner: Scratch, rows: int, hidden: int
    ) -> Iterator[Dispatch]:
        """Gates and ups of different types: side by side first, then their activation."""
        assert self.up is not None
        both = ctx.scratch(rows * 2 * hidden * 4)
        sides = ((self.gate_up, self.gate_up_bias), (self.up, self.up_bias))
        for n, (weight, bias) in enumerate(sides):
            ends = Epilogue(bias, experts=experts.route)
            product = Product(self.x, rows, self.x.width, ends, both, 2 * hidden, experts=experts)
            yield from expert_linear(ctx, parts_of(weight), product, n * hidden)
        plain = Product(both, rows, self.x.width, Epilogue(activation=self.activation), inner, hidden)
        yield store_apart(plain, both, 2 * hidden, rows)

    def bytes_read(self, tensor: Tensor, dispatch: Dispatch) -> int:
        if tensor.rank != 3 or tensor.dtype not in BLOCK_TYPES:
            return tensor.nbytes
        return share_of(tensor, self.chosen.numel, tensor.dims[0])  # tokens may have experts in common: it is less then

    def flops(self, dispatch: Dispatch) -> float:
        every = (*parts_of(self.gate_up), *parts_of(self.down), *(() if self.up is None else parts_of(self.up)))
        used = [weight for weight in every if same(weight, *dispatch.reads)]
        count = sum(part.dims[0] for part in parts_of(self.down))
        products = (2 * self.chosen.numel * w.dims[1] * w.dims[2] * w.dims[0] / count for w in used)
        return sum(products) if used else largest(dispatch)

    @staticmethod
    def reference(
        x: np.ndarray,
        chosen: np.ndarray,
        shares: np.ndarray,
        gate_up: Any,
        down: Any,
        up: Any,
        gate_up_bias: np.ndarray | None,
        up_bias: np.ndarray | None,
        down_bias: np.ndarray | None,
        activation: str,
    ) -> np.ndarray:
        gates, ups, downs = (_whole(weight) for weight in (gate_up, up, down))
        rows, picked = x.reshape(-1, x.shape[-1]), np.clip(chosen, 0, len(downs) - 1).reshape(-1, chosen.shape[-1])
        weights, out = shares.reshape(picked.shape), np.zeros((len(rows), downs.shape[1]), x.dtype)
        for expert in np.unique(picked):
            token, place = np.nonzero(picked == expert)
            inner = _biased(rows[token] @ gates[expert].T, gate_up_bias, expert)
            if ups is not None:
                inner = np.concatenate([inner, _biased(rows[token] @ ups[expert].T, up_bias, expert)], axis=-1)
            made = _biased(finished(inner, None, None, activation) @ downs[expert].T, down_bias, expert)
            np.add.at(out, token, weights[token, place][:, None] * made)
        return out.reshape(*x.shape[:-1], downs.shape[1])


@op("hightide.head_linear.default", family="experts")
class HeadLinear(Op):
    """x @ weight.T for each head: x [..., heads, K], weight [heads, N, K] in GGUF's blocks."""

    x: Tensor
    weight: Weight

    def outputs(self, ctx: Context) -> list[Dims]:
        x = self.x
        if x.rank < 2:
            raise InputError(f"{list(x.dims)} has no heads")
        _, n = _checked(self.weight, x.width, x.dims[-2])
        return [(*x.dims[:-1], n)]

    def plan(self, ctx: Context, out: Tensor) -> Iterable[Dispatch]:
        if not out.numel:
            return
        x, experts = self.x, Experts(self.x.dims[-2], 1, "heads")
        product = Product(x, x.rows, x.width, Epilogue(experts="heads"), out, out.width, experts=experts)
        yield from expert_linear(ctx, parts_of(self.weight), product)

    def flops(self, dispatch: Dispatch) -> float:
        rows = self.x.rows // self.x.dims[-2]
        return sum(2 * rows * part.numel for part in parts_of(self.weight) if same(part, *dispatch.reads))

    @staticmethod
    def reference(x: np.ndarray, weight: Any) -> np.ndarray:
        return np.einsum("...hk,hnk->...hn", x, _whole(weight))


def _checked(weight: Weight, width: int, count: int | None = None) -> tuple[int, int]:
    """(experts, rows) of a weight in blocks."""
    parts = parts_of(weight)
    dims = [list(part.dims) for part in parts]
    if any(part.rank != 3 or part.width != width or part.dims[1] != parts[0].dims[1] for part in parts):
        raise InputError(f"weights of experts {dims} do not fit rows of {width}")
    if width % BLOCK or any(part.dtype not in BLOCK_TYPES for part in parts):
        raise UnsupportedError(f"weights of experts {dims} in {parts[0].dtype} are not whole blocks of {BLOCK}")
    found = sum(part.dims[0] for part in parts)
    if not 1 <= found <= MOST_EXPERTS or (count is not None and found != count):
        raise InputError(f"weights {dims} are not of {MOST_EXPERTS if count is None else count} experts")
    return found, parts[0].dims[1]


def _whole(weight: Any) -> Any:
    return np.concatenate(weight) if isinstance(weight, tuple) else weight


def _biased(product: np.ndarray, bias: np.ndarray | None, expert: int) -> np.ndarray:
    return product if bias is None else product + bias[expert]
