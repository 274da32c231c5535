"""A folder that transformers.js opens, made from a GGUF file of the llama architecture.

Usage: python onnx_folder.py MODEL.gguf FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx_llama import GraphBuilder, Names, add_layers
from quantized import Llama, open_llama

CONTEXT = 2048
NAMES = Names(
    tokens="input_ids",
    seqlens_k="seqlens_k",
    total="total",
    past="past_key_values.{layer}.{part}",
    present="present.{layer}.{part}",
    parts=("key", "value"),
)


def config(llama: Llama) -> dict[str, Any]:
    sizes = llama.sizes
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": sizes["dim"],
        "head_dim": sizes["depth"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "vocab_size": len(llama.head),
        "max_position_embeddings": CONTEXT,
    }


def decoder(llama: Llama) -> Any:
    """As exports on Hugging Face have it: lengths come from the mask, logits are those of the last tokens."""
    from onnx import TensorProto, helper

    builder = GraphBuilder()
    node, constant = builder.node, builder.constant
    one = constant("one", np.array([1], np.int64))
    counted = node("ReduceSum", ["attention_mask", one], "counted", keepdims=0)
    node("Cast", [node("Sub", [counted, one], "before")], NAMES.seqlens_k, to=TensorProto.INT32)
    shape = node("Shape", ["attention_mask"], "mask_shape")
    length = node("Gather", [shape, constant("second", np.array(1, np.int64))], "length")
    node("Cast", [length], NAMES.total, to=TensorProto.INT32)

    hidden = add_layers(builder, llama, NAMES, CONTEXT)
    first = node("Reshape", [node("Neg", ["num_logits_to_keep"], "minus"), one], "first")
    end = constant("end", np.array([1 << 62], np.int64))
    builder.linear(node("Slice", [hidden, first, end, one], "last"), "logits", llama.head)

    def info(name: str, dims: list[Any], kind: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, dims)

    def caches(pattern: str, length: str) -> list[Any]:
        dims = [1, llama.sizes["kv_heads"], length, llama.sizes["depth"]]
        return [info(name, dims) for n in range(llama.sizes["layers"]) for name in NAMES.of_layer(pattern, n)]

    inputs = [
        info("input_ids", [1, "S"], TensorProto.INT64),
        info("attention_mask", [1, "T"], TensorProto.INT64),
        info("num_logits_to_keep", [], TensorProto.INT64),
        *caches(NAMES.past, "P"),
    ]
    return builder.model(inputs, [info("logits", [1, "kept", len(llama.head)]), *caches(NAMES.present, "T")])


def main() -> None:
    llama, folder = open_llama(sys.argv[1]), Path(sys.argv[2])
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(llama)))
    (folder / "generation_config.json").write_text("{}")
    (folder / "onnx" / "model_q4.onnx").write_bytes(decoder(llama).SerializeToString())


if __name__ == "__main__":
    main()
