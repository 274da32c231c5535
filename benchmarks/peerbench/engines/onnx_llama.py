"""A Llama decoder of a GGUF file as an ONNX graph, in the operators that exporters for ONNX Runtime use.

MatMulNBits for every linear, GroupQueryAttention with rotary embedding, SimplifiedLayerNormalization. The weights are
quantized anew: 4 bits in groups of 32 with a scale each, as ONNX Runtime's own quantizer makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from quantized import GROUP, Llama, quantize_q4

MICROSOFT = "com.microsoft"


@dataclass
class GraphBuilder:
    """Nodes and constants of a graph, in the order in which they were added."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, name: str, array: np.ndarray) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def node(self, op: str, given: Sequence[str], out: str | list[str], domain: str = "", **attributes: Any) -> Any:
        from onnx import helper

        outs = [out] if isinstance(out, str) else out
        self.nodes.append(helper.make_node(op, given, outs, domain=domain, name=outs[0], **attributes))
        return out

    def linear(self, x: str, name: str, weights: np.ndarray) -> str:
        return self.packed_linear(x, name, *quantize_q4(weights))

    def packed_linear(self, x: str, name: str, packed: np.ndarray, scales: np.ndarray) -> str:
        """By a matrix that `quantize_q4` packed."""
        rows, groups = scales.shape
        w = self.constant(f"{name}.w", packed.reshape(rows, groups, GROUP // 2))
        s = self.constant(f"{name}.s", scales.reshape(-1))
        return self.node("MatMulNBits", [x, w, s], name, MICROSOFT, K=groups * GROUP, N=rows, bits=4, block_size=GROUP)

    def norm(self, x: str, name: str, weights: np.ndarray, eps: float) -> str:
        scale = self.constant(f"{name}.scale", weights)
        return self.node("SimplifiedLayerNormalization", [x, scale], name, epsilon=eps, axis=-1)

    def model(self, inputs: list[Any], outputs: list[Any]) -> Any:
        from onnx import helper

        graph = helper.make_graph(self.nodes, "bench", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@dataclass(frozen=True)
class Names:
    """What a decoder's inputs and outputs are called; those of layers have a place for the layer and for k or v."""

    tokens: str
    seqlens_k: str  # tokens with this step's, less one
    total: str  # tokens with this step's
    past: str
    present: str
    parts: tuple[str, str]  # keys, values

    def of_layer(self, pattern: str, layer: int) -> list[str]:
        return [pattern.format(layer=layer, part=part) for part in self.parts]


def add_layers(builder: GraphBuilder, llama: Llama, names: Names, context: int) -> str:
    """Everything up to the last norm: tokens [1, S] -> hidden states [1, S, dim]."""
    sizes, eps = llama.sizes, llama.eps
    node, linear, norm = builder.node, builder.linear, builder.norm
    heads = {"num_heads": sizes["heads"], "kv_num_heads": sizes["kv_heads"], "do_rotary": 1}
    cos, sin = llama.rope_tables(context)
    rope = [builder.constant("cos", cos), builder.constant("sin", sin)]
    x = node("Gather", [builder.constant("table", llama["token_embd.weight"]), names.tokens], "x0")
    for n in range(sizes["layers"]):
        at = f"blk.{n}"
        h = norm(x, f"{at}.h", llama[f"{at}.attn_norm.weight"], eps)
        q, k = (linear(h, f"{at}.{m}", llama.halves(f"{at}.attn_{m}.weight")) for m in "qk")
        v = linear(h, f"{at}.v", llama[f"{at}.attn_v.weight"])
        given = [q, k, v, *names.of_layer(names.past, n), names.seqlens_k, names.total, *rope]
        outs = [f"{at}.attended", *names.of_layer(names.present, n)]
        attended = node("GroupQueryAttention", given, outs, MICROSOFT, **heads)[0]
        x = node("Add", [x, linear(attended, f"{at}.o", llama[f"{at}.attn_output.weight"])], f"{at}.x1")
        h = norm(x, f"{at}.h2", llama[f"{at}.ffn_norm.weight"], eps)
        gate = linear(h, f"{at}.gate", llama[f"{at}.ffn_gate.weight"])
        up = linear(h, f"{at}.up", llama[f"{at}.ffn_up.weight"])
        gate = node("Mul", [gate, node("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
        both = node("Mul", [gate, up], f"{at}.both")
        x = node("Add", [x, linear(both, f"{at}.down", llama[f"{at}.ffn_down.weight"])], f"{at}.x2")
    return norm(x, "normed", llama["output_norm.weight"], eps)
