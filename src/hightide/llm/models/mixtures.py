"""The feed-forward half of a layer as a mixture of experts.

GGUF has the matrices of all experts of a layer in one tensor [experts, rows, width]. They stay in their blocks; a
tensor that is too large to bind is split by experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from hightide.errors import ProgramError
from hightide.formats.gguf import GgufTensor
from hightide.graph.blob import Blob, Joined
from hightide.graph.values import TensorValue
from hightide.llm.models.layer_parts import feed_forward
from hightide.llm.models.model_builder import ModelBuilder

FeedForward: TypeAlias = Callable[[ModelBuilder, TensorValue, int], TensorValue]  # (m, normed x, layer number)


def mixture(
    m: ModelBuilder,
    h: TensorValue,
    n: int,
    *,
    scoring: str = "softmax",
    normalized: bool = True,
    scale: float = 1.0,
    groups: tuple[int, int] = (1, 1),
    activation: str = "silu",
) -> TensorValue:
    """What the experts of each token make of it, added up by their shares; see `hightide.route_experts`.

    `groups` are how many there are and how many of them are used. A layer `n` without a router is dense.
    """
    layer = f"blk.{n}"
    if not m.has(f"{layer}.ffn_gate_inp.weight"):
        return feed_forward(m, h, n)
    b, used = m.graph_builder, m.count("expert_used_count")
    bias = f"{layer}.exp_probs_b.bias"
    chosen, shares = b.call(
        "hightide.route_experts.default",
        m.linear(h, f"{layer}.ffn_gate_inp"),
        used,
        b.constant(m.array(bias)) if m.has(bias) else None,
        scoring,
        normalized,
        scale,
        *groups,
        dtype=("int32", "float32"),
    )
    return b.call("hightide.experts.default", h, chosen, shares, *_weights(m, layer), activation)


def shared_expert(m: ModelBuilder, h: TensorValue, n: int) -> TensorValue:
    """The expert that every token takes, gated by a sigmoid of its own if the file has one."""
    gate, up = (m.linear(h, f"blk.{n}.ffn_{side}_shexp") for side in ("gate", "up"))
    made, share_of = m.linear(m.gated(gate, up), f"blk.{n}.ffn_down_shexp"), f"blk.{n}.ffn_gate_inp_shexp.weight"
    if not m.has(share_of):
        return made
    b = m.graph_builder
    weight = b.constant(m.array(share_of).reshape(1, -1))
    share = b.call("aten.sigmoid.default", b.call("aten.linear.default", h, weight, None))
    return m.multiply(made, share)


def head_linear(m: ModelBuilder, x: TensorValue, tensor: GgufTensor) -> TensorValue:
    """x [1, S, heads, K] times a matrix [N, K] of each head."""
    if len(tensor.dims) != 3:
        raise ProgramError(f"{m.file.path}: tensor {tensor.name} has dims {list(tensor.dims)}, not three")
    made: TensorValue = m.graph_builder.call("hightide.head_linear.default", x, _matrices(m, tensor))
    return made


def _weights(m: ModelBuilder, layer: str) -> tuple[object, ...]:
    """(gate_up, down, up, and their biases) for `hightide.experts`: gates and ups of one type are side by side."""
    sides = ("gate_up",) if m.has(f"{layer}.ffn_gate_up_exps.weight") else ("gate", "up")
    tensors = [m.tensor(f"{layer}.ffn_{side}_exps.weight") for side in sides]
    biases = [_bias(m, f"{layer}.ffn_{side}_exps.bias") for side in sides]
    down, down_bias = m.tensor(f"{layer}.ffn_down_exps.weight"), _bias(m, f"{layer}.ffn_down_exps.bias")
    if len({len(tensor.dims) for tensor in (*tensors, down)} - {3}) or len({tensor.dims for tensor in tensors}) > 1:
        found = ", ".join(str(list(tensor.dims)) for tensor in (*tensors, down))
        raise ProgramError(f"{m.file.path}: the experts of {layer} have weights of {found}, which do not fit together")
    each = sum(tensor.data.length for tensor in tensors) // tensors[0].dims[0]
    alike = len({tensor.type for tensor in tensors}) == len({bias is None for bias in biases}) == 1
    if len(tensors) == 2 and alike and each <= m.part_bytes:
        joined = [bias for bias in biases if bias is not None]
        biases = [np.concatenate(joined, axis=-1) if joined else None]
        weights = [_matrices(m, *tensors), None]
    else:
        weights = [*(_matrices(m, tensor) for tensor in tensors), None]
    given = [None if one is None else m.graph_builder.constant(one) for one in (*(*biases, None)[:2], down_bias)]
    return weights[0], _matrices(m, down), weights[1], *given


def _bias(m: ModelBuilder, name: str) -> np.ndarray | None:
    return m.array(name) if m.has(name) else None


def _matrices(m: ModelBuilder, *tensors: GgufTensor) -> list[TensorValue]:
    """The matrices of experts, of several tensors side by side, in parts that can be bound."""
    experts, _, width = tensors[0].dims
    rows = sum(tensor.dims[1] for tensor in tensors)
    each = tuple(tensor.data.length // experts for tensor in tensors)
    step = max(1, m.part_bytes // sum(each))
    parts = []
    for first in range(0, experts, step):
        held = min(step, experts - first)
        blobs = tuple(
            Blob(tensor.data.source, tensor.data.offset + first * size, held * size)
            for tensor, size in zip(tensors, each, strict=True)
        )
        data = blobs[0] if len(blobs) == 1 else Joined(blobs, held, each)
        parts.append(m.graph_builder.stored((held, rows, width), tensors[0].type, data))
    return parts
