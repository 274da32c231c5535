"""Gemma 3n (text): four streams of x that predict each other (AltUp), an input of its own for each layer, sparse gates.

One stream goes through a layer; the others are corrected by what the layer changed. The last layers attend to the keys
and values of earlier ones, which their caches hold once more. The file's norm weights are those of the original.
"""

from __future__ import annotations

import math

import numpy as np

from hightide.errors import ProgramError
from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder
from hightide.llm.models.rope import rope_of

LOCAL_THETA = 10_000.0
STREAMS = 4
PATTERN = 5  # every fifth layer is global
OWN_KEYS = 20  # layers with keys and values of their own, in files that do not say how many share them
SMALLEST = 1e-5  # mean square of a stream
INPUTS = "per_layer_token_embd.weight"
RMS_EPS = "attention.layer_norm_rms_epsilon"


def build(m: ModelBuilder) -> TensorValue:
    width, layers, b = m.count("embedding_length"), m.layers(), m.graph_builder
    active, streams = int(m.number("altup.active_idx", 0)), m.count("altup.num_inputs", STREAMS)
    keys = _Keys(m, layers - int(m.number("attention.shared_kv_layers", max(0, layers - OWN_KEYS))))

    embedded = m.scale(m.embed(), math.sqrt(width))
    inputs = _layer_inputs(m, embedded, layers)
    ins, outs = (m.matrices(f"altup_{name}.weight", streams - 1) for name in ("proj", "unembd_proj"))
    others = [_as_large(m, b.call("aten.linear.default", embedded, matrix, None), embedded) for matrix in ins]
    x = b.call("aten.cat.default", [m.heads(one, 1, width) for one in (embedded, *others)], 2)  # [1, S, streams, width]
    not_first = b.constant((np.arange(streams) > 0).astype(np.float32)[:, None])
    for n, window in enumerate(m.windows(PATTERN)):
        x = _predicted(m, x, n, active)
        before = _one_of(m, x, active)
        h = m.norm(before, f"blk.{n}.attn_norm")
        low = m.linear(m.linear(h, f"blk.{n}.laurel_l"), f"blk.{n}.laurel_r")
        laurel = m.add(h, m.norm(low, f"blk.{n}.laurel_post_norm"))
        h = m.norm(_attention(m, h, n, keys, window), f"blk.{n}.post_attention_norm")
        attended = m.scale(m.add(m.add(before, h), laurel), math.sqrt(0.5))
        h = _feed_forward(m, m.norm(attended, f"blk.{n}.ffn_norm"), n)
        after = m.add(attended, m.norm(h, f"blk.{n}.post_ffw_norm"))
        x = _corrected(m, x, before, after, n)
        # What the layer's own input adds goes to every stream but the first.
        scale = b.constant(m.array(f"blk.{n}.altup_correct_scale.weight"))
        h = m.linear(m.multiply(_one_of(m, x, active), scale), f"blk.{n}.inp_gate")
        h = m.linear(m.gated(h, _one_of(m, inputs, n), "gelu_tanh"), f"blk.{n}.proj")
        x = m.add(x, m.multiply(m.heads(m.norm(h, f"blk.{n}.post_norm"), 1, width), not_first))

    first = merged = _one_of(m, x, 0)
    for n, matrix in enumerate(outs):
        other = b.call("aten.linear.default", _one_of(m, x, n + 1), matrix, None)
        merged = m.add(merged, _as_large(m, other, first))
    merged = m.scale(merged, 1 / streams)
    return m.head(m.norm(m.last(merged), "output_norm"), m.number("final_logit_softcapping", 0))


class _Keys:
    """Rotary tables, and keys and values of the last layers that have their own, by whether they have a window."""

    def __init__(self, m: ModelBuilder, own: int) -> None:
        _, _, depth = m.attention_dims()
        theta = m.number("rope.freq_base_swa", LOCAL_THETA, least=2)
        self.ropes = {False: rope_of(m, halves=True), True: m.rope(halves=True, theta=theta, rotary=depth)}
        self.own, self.ones = own, m.graph_builder.constant(np.ones(depth, np.float32))
        self.kept: dict[bool, tuple[TensorValue, TensorValue]] = {}


def _attention(m: ModelBuilder, h: TensorValue, n: int, keys: _Keys, window: int) -> TensorValue:
    layer, (heads, kv_heads, depth), is_local = f"blk.{n}", m.attention_dims(n), bool(window)
    q = m.norm(m.heads(m.linear(h, f"{layer}.attn_q"), heads, depth), f"{layer}.attn_q_norm")
    if n < keys.own:
        k = m.norm(m.heads(m.linear(h, f"{layer}.attn_k"), kv_heads, depth), f"{layer}.attn_k_norm")
        v = m.heads(m.linear(h, f"{layer}.attn_v"), kv_heads, depth)
        v = m.graph_builder.call("et_vk.rms_norm.default", v, keys.ones, m.number(RMS_EPS))
        q, k = m.rotate(q, k, keys.ropes[is_local])
        keys.kept[is_local] = k, v
    else:
        m.leave_out(f"{layer}.attn_k")  # as the original has them, and does not use them
        m.leave_out(f"{layer}.attn_v")
        q, _ = m.rotate(q, q, keys.ropes[is_local])
    if is_local not in keys.kept:
        raise ProgramError(f"{m.file.path}: no layer before {n} has keys and values that it could share")
    k, v = keys.kept[is_local]
    return m.linear(m.attend(q, k, v, scale=1.0, window=window), f"{layer}.attn_output")


def _feed_forward(m: ModelBuilder, h: TensorValue, n: int) -> TensorValue:
    """Some layers keep those gates only that are so many standard deviations above the mean."""
    gate, up, b = m.linear(h, f"blk.{n}.ffn_gate"), m.linear(h, f"blk.{n}.ffn_up"), m.graph_builder
    scales = m.file.get("activation_sparsity_scale")
    if not isinstance(scales, list) or len(scales) <= n or not isinstance(scales[n], float):
        raise ProgramError(f"{m.file.path}: gemma3n.activation_sparsity_scale has no number for layer {n}")
    if math.isfinite(scales[n]):
        variance, mean = b.call("aten.var_mean.correction", gate, [-1], 0, True)
        cutoff = m.add(mean, m.scale(b.call("aten.sqrt.default", variance), scales[n]))
        gate = m.activate(b.call("aten.sub.Tensor", gate, cutoff, 1), "relu")
    return m.linear(m.gated(gate, up, "gelu_tanh"), f"blk.{n}.ffn_down")


# ---- streams


def _one_of(m: ModelBuilder, x: TensorValue, n: int) -> TensorValue:
    """[1, S, count, width] -> [1, S, width]"""
    return m.graph_builder.call("aten.select_copy.int", x, 2, n)


def _as_large(m: ModelBuilder, x: TensorValue, like: TensorValue) -> TensorValue:
    """x with the root mean square of another."""
    b = m.graph_builder
    sizes = (b.call("aten.mean.dim", m.multiply(one, one), [-1], True) for one in (like, x))
    wanted, found = (b.call("aten.sqrt.default", b.call("aten.clamp.default", one, SMALLEST, None)) for one in sizes)
    return m.multiply(x, b.call("aten.div.Tensor", wanted, found))


def _layer_inputs(m: ModelBuilder, embedded: TensorValue, layers: int) -> TensorValue:
    """[1, S, layers, width of an input]: from a table by token, and from the embedding."""
    width, tokens, rows = m.count("embedding_length_per_layer_input"), m.rows("token_embd.weight"), m.rows(INPUTS)
    if rows != tokens:
        raise ProgramError(f"{m.file.path}: {INPUTS} has {rows} rows for a vocabulary of {tokens}")
    table = m.heads(m.scale(m.embed(INPUTS), math.sqrt(width)), layers, width)
    made = m.scale(m.linear(embedded, "per_layer_model_proj"), 1 / math.sqrt(embedded.dims[-1]))
    return m.scale(m.add(m.norm(m.heads(made, layers, width), "per_layer_proj_norm"), table), math.sqrt(0.5))


def _routed(m: ModelBuilder, x: TensorValue, n: int) -> TensorValue:
    """[1, S, streams]"""
    h = m.scale(m.norm(x, f"blk.{n}.altup_router_norm"), 1 / x.dims[-1])
    return m.activate(m.linear(h, f"blk.{n}.altup_router"), "tanh")


def _predicted(m: ModelBuilder, x: TensorValue, n: int, active: int) -> TensorValue:
    """Every stream, plus what the others add to it."""
    b, (streams, width) = m.graph_builder, x.dims[2:]
    mixing = m.linear(_routed(m, _one_of(m, x, active), n), f"blk.{n}.altup_predict_coef")
    mixing = b.call("aten.view_copy.default", mixing, [1, m.length, streams, streams, 1])
    parts = m.multiply(mixing, b.call("aten.view_copy.default", x, [1, m.length, 1, streams, width]))
    return m.add(x, b.call("aten.sum.dim_IntList", parts, [3], False))


def _corrected(m: ModelBuilder, x: TensorValue, before: TensorValue, after: TensorValue, n: int) -> TensorValue:
    """Every stream, plus a share of what the layer has changed in the active one."""
    change = m.graph_builder.call("aten.sub.Tensor", after, before, 1)
    shares = m.linear(_routed(m, after, n), f"blk.{n}.altup_correct_coef")
    shares = m.graph_builder.call("aten.add.Scalar", shares, 1.0, 1)
    return m.add(x, m.multiply(m.heads(shares, x.dims[2], 1), m.heads(change, 1, x.dims[3])))
