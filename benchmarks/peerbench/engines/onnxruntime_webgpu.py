"""ONNX Runtime on its WebGPU provider (Dawn): a q4 matmul, or a whole Llama decoder.

Usage: python onnxruntime_webgpu.py [MODEL.gguf]

The decoder is made from the GGUF file: MatMulNBits for every linear, GroupQueryAttention with rotary
embedding, keys and values kept on the device. Running any of it on the CPU is refused.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from quantized import GROUP, K, N, activations, open_llama, q4_matrix, quantize_q4
from wire import Sequential, Stopwatch, serve

CONTEXT = 1280


def open_session(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any]) -> Any:
    """A session of which nothing runs on the CPU."""
    import onnxruntime
    from onnx import helper

    if "WebGpuExecutionProvider" not in onnxruntime.get_available_providers():
        raise ValueError("this onnxruntime has no WebGpuExecutionProvider")
    graph = helper.make_graph(nodes, "bench", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["WebGpuExecutionProvider"])
    if session.get_providers()[0] != "WebGpuExecutionProvider":
        raise ValueError(f"it would run on {session.get_providers()[0]}")
    return session


class Matmul:
    def __init__(self) -> None:
        from onnx import TensorProto, helper, numpy_helper

        packed, self.scales = q4_matrix()
        self.packed = packed
        node = helper.make_node(
            "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=K, N=N, bits=4, block_size=GROUP
        )
        constants = [
            numpy_helper.from_array(packed.reshape(N, K // GROUP, GROUP // 2), "w"),
            numpy_helper.from_array(self.scales.reshape(-1), "s"),
        ]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", N])
        self.session = open_session([node], [x], [y], constants)

    def matmul(self, watch: Stopwatch, rows: int, count: int) -> None:
        x = activations(rows)
        for _ in range(count):
            with watch:
                (y,) = self.session.run(None, {"x": x})
        nibbles = np.stack([self.packed & 15, self.packed >> 4], -1).reshape(N, K // GROUP, GROUP)
        error = np.abs(y[0] - ((nibbles - 8.0) * self.scales[..., None]).reshape(N, K) @ x[0]).max()
        if not error < 1e-2:
            raise ValueError(f"its matmul is wrong by {error}")


class Decoder(Sequential):
    """tokens [1, S] -> the likeliest next id; keys and values in buffers of the whole context."""

    def __init__(self, path: str) -> None:
        from onnx import TensorProto, helper, numpy_helper

        llama = open_llama(path)
        self.sizes = sizes = llama.sizes
        nodes: list[Any] = []
        constants: list[Any] = []
        heads, kv_heads, depth = sizes["heads"], sizes["kv_heads"], sizes["depth"]

        def constant(name: str, array: np.ndarray) -> str:
            constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
            return name

        def node(op: str, given: list[str], out: str | list[str], domain: str = "", **attributes: Any) -> Any:
            outs = [out] if isinstance(out, str) else out
            nodes.append(helper.make_node(op, given, outs, domain=domain, name=outs[0], **attributes))
            return out

        def linear(x: str, name: str, weights: np.ndarray) -> str:
            packed, scales = quantize_q4(weights)
            rows, columns = weights.shape
            w = constant(f"{name}.w", packed.reshape(rows, columns // GROUP, GROUP // 2))
            s = constant(f"{name}.s", scales.reshape(-1))
            sized = {"K": columns, "N": rows, "bits": 4, "block_size": GROUP}
            return node("MatMulNBits", [x, w, s], name, "com.microsoft", **sized)

        cos, sin = llama.rope_tables(CONTEXT)
        constant("cos", cos)
        constant("sin", sin)
        x = node("Gather", [constant("table", llama["token_embd.weight"]), "tokens"], "x0")
        for n in range(sizes["layers"]):
            at = f"blk.{n}"
            norm = constant(f"{at}.attn_norm", llama[f"{at}.attn_norm.weight"])
            h = node("SimplifiedLayerNormalization", [x, norm], f"{at}.h", epsilon=llama.eps, axis=-1)
            q, k, v = (linear(h, f"{at}.{m}", llama[f"{at}.attn_{m}.weight"]) for m in "qkv")
            given = [q, k, v, f"past_k{n}", f"past_v{n}", "seqlens_k", "total", "cos", "sin"]
            outs = [f"{at}.attended", f"k{n}", f"v{n}"]
            head_options = {"num_heads": heads, "kv_num_heads": kv_heads, "do_rotary": 1, "rotary_interleaved": 1}
            attended, _, _ = node("GroupQueryAttention", given, outs, "com.microsoft", **head_options)
            x = node("Add", [x, linear(attended, f"{at}.o", llama[f"{at}.attn_output.weight"])], f"{at}.x1")
            norm = constant(f"{at}.ffn_norm", llama[f"{at}.ffn_norm.weight"])
            h = node("SimplifiedLayerNormalization", [x, norm], f"{at}.h2", epsilon=llama.eps, axis=-1)
            gate = linear(h, f"{at}.gate", llama[f"{at}.ffn_gate.weight"])
            up = linear(h, f"{at}.up", llama[f"{at}.ffn_up.weight"])
            gate = node("Mul", [gate, node("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
            both = node("Mul", [gate, up], f"{at}.both")
            x = node("Add", [x, linear(both, f"{at}.down", llama[f"{at}.ffn_down.weight"])], f"{at}.x2")
        start, end, axis = (constant(c, np.array([v], np.int64)) for c, v in (("m1", -1), ("big", 1 << 30), ("one", 1)))
        x = node("Slice", [x, start, end, axis], "last")
        h = node(
            "SimplifiedLayerNormalization",
            [x, constant("norm", llama["output_norm.weight"])],
            "normed",
            epsilon=llama.eps,
            axis=-1,
        )
        linear(h, "logits", llama.head)

        def info(name: str, dims: list[Any], kind: int = TensorProto.FLOAT) -> Any:
            return helper.make_tensor_value_info(name, kind, dims)

        cache = [1, kv_heads, "context", depth]
        inputs = [
            info("tokens", [1, "S"], TensorProto.INT64),
            info("seqlens_k", [1], TensorProto.INT32),
            info("total", [1], TensorProto.INT32),
            *(info(f"past_{c}{n}", cache) for n in range(sizes["layers"]) for c in "kv"),
        ]
        outputs = [
            info("logits", [1, 1, len(llama.head)]),
            *(info(f"{c}{n}", cache) for n in range(sizes["layers"]) for c in "kv"),
        ]
        self.session = open_session(nodes, inputs, outputs, constants)
        self.position = 0
        self.next = 0
        self.empty = np.zeros((1, kv_heads, 0, depth), np.float32)
        self.caches: dict[str, Any] = {f"{c}{n}": None for n in range(sizes["layers"]) for c in "kv"}

    def step(self, tokens: list[int]) -> int:
        binding = self.session.io_binding()
        total = self.position + len(tokens)
        binding.bind_cpu_input("tokens", np.array([tokens], np.int64))
        binding.bind_cpu_input("seqlens_k", np.array([total - 1], np.int32))
        binding.bind_cpu_input("total", np.array([total], np.int32))
        binding.bind_output("logits", "cpu")
        for name in self.caches:  # what a run leaves on the device is the next one's past
            if self.position:
                binding.bind_ortvalue_input(f"past_{name}", self.caches[name])
            else:
                binding.bind_cpu_input(f"past_{name}", self.empty)
            binding.bind_output(name, "webgpu")
        self.session.run_with_iobinding(binding)
        logits, *left = binding.get_outputs()
        self.caches = dict(zip(self.caches, left, strict=True))
        self.position = total
        self.next = int(logits.numpy().argmax())
        return self.next


def open_peer() -> tuple[Any, dict[str, Any]]:
    from importlib.metadata import version

    peer = Decoder(sys.argv[1]) if len(sys.argv) > 1 else Matmul()
    return peer, {"device": "WebGPU (Dawn)", "version": f"onnxruntime-webgpu {version('onnxruntime-webgpu')}"}


if __name__ == "__main__":
    serve(open_peer)
