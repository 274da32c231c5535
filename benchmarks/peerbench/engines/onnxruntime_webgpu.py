"""ONNX Runtime on its WebGPU provider (Dawn): a q4 matmul, or a whole Llama decoder.

Usage: python onnxruntime_webgpu.py [MODEL.gguf]

The decoder is made from the GGUF file (see `onnx_llama.py`); keys and values are kept on the device. Running any of it
on the CPU is refused.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from onnx_llama import GraphBuilder, Names, add_layers
from quantized import GROUP, K, N, activations, open_llama, q4_matrix
from wire import Sequential, Stopwatch, serve

CONTEXT = 1280
NAMES = Names("tokens", "seqlens_k", "total", "past_{part}{layer}", "{part}{layer}", ("k", "v"))


def open_session(model: Any) -> Any:
    """A session of which nothing runs on the CPU."""
    import onnxruntime

    if "WebGpuExecutionProvider" not in onnxruntime.get_available_providers():
        raise ValueError("this onnxruntime has no WebGpuExecutionProvider")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["WebGpuExecutionProvider"])
    if session.get_providers()[0] != "WebGpuExecutionProvider":
        raise ValueError(f"it would run on {session.get_providers()[0]}")
    return session


class Matmul:
    def __init__(self) -> None:
        from onnx import TensorProto, helper

        self.packed, self.scales = q4_matrix()
        builder = GraphBuilder()
        builder.packed_linear("x", "y", self.packed, self.scales)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", N])
        self.session = open_session(builder.model([x], [y]))

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
        from onnx import TensorProto, helper

        llama, builder = open_llama(path), GraphBuilder()
        layers, kv_heads, depth = (llama.sizes[name] for name in ("layers", "kv_heads", "depth"))
        hidden = add_layers(builder, llama, NAMES, CONTEXT)
        slices = (("first", -1), ("end", 1 << 30), ("axis", 1))
        given = [builder.constant(name, np.array([value], np.int64)) for name, value in slices]
        builder.linear(builder.node("Slice", [hidden, *given], "last"), "logits", llama.head)

        def info(name: str, dims: list[Any], kind: int = TensorProto.FLOAT) -> Any:
            return helper.make_tensor_value_info(name, kind, dims)

        def caches(pattern: str) -> list[Any]:
            dims = [1, kv_heads, "context", depth]
            return [info(name, dims) for n in range(layers) for name in NAMES.of_layer(pattern, n)]

        inputs = [
            info("tokens", [1, "S"], TensorProto.INT64),
            info("seqlens_k", [1], TensorProto.INT32),
            info("total", [1], TensorProto.INT32),
            *caches(NAMES.past),
        ]
        outputs = [info("logits", [1, 1, len(llama.head)]), *caches(NAMES.present)]
        self.session = open_session(builder.model(inputs, outputs))
        self.position = 0
        self.next = 0
        self.empty = np.zeros((1, kv_heads, 0, depth), np.float32)
        self.caches: dict[str, Any] = {f"{c}{n}": None for n in range(layers) for c in "kv"}

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
