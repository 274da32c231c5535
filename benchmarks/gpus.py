"""Predicted speed on GPUs that need not be there: models of common shapes, and single products beside llama.cpp's.

Models are files without weights, of the shapes of Llama-3.2-1B and Llama-3.1-8B in Q4_0, and SmolLM2. Every
kernel of their plans is compiled by the real compiler, and a model of the time of each dispatch is added up
(`hightide kernels` shows all of it). With `--peers`, the same for the shaders that `node-llama-cpp` brings, as it would
start them on these GPUs. Needs Mesa's drivers, the extra `kernels`, and for `--peers` also `nm` and
`python benchmarks/compare.py --setup llama.cpp`.

    python benchmarks/gpus.py [--targets amd:navi21,amd:navi31] [--peers]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from peerbench.llama_cpp_kernels import beside_llama_cpp

from hightide.llm.default_model import default_model
from hightide.llm.model import default_chunk
from hightide.tools.kernels.judged import judge_file
from hightide.tools.kernels.target_gpus import target_gpu
from hightide.tools.opened_file import open_file

TARGETS = "amd:navi21,amd:navi31,amd:gfx1201"
LEVELS = ({"S": 1, "pos": 128}, {"S": 1, "pos": 4000}, {"S": 128, "pos": 0}, {"S": 512, "pos": 0})
CONTEXT = 4608
ROUTES: tuple[tuple[dict[str, str], str], ...] = (
    ({}, ""),
    ({"linear.activations": "int8"}, ", 8-bit activations"),
)
# width, layers, heads, kv heads, depth of a head, width of the FFN
SHAPES = {"Llama-3.2-1B, Q4_0": (2048, 16, 32, 8, 64, 8192), "Llama-3.1-8B, Q4_0": (4096, 32, 32, 8, 128, 14336)}
VOCABULARY = 128_256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--peers", action="store_true", help="products beside llama.cpp's")
    options = parser.parse_args()
    gpus = [target_gpu(name) for name in options.targets.split(",")]
    print(f"| model | GPU | {' | '.join(_name(level) for level in LEVELS)} |\n| --- | --- |{' --- |' * len(LEVELS)}")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in models(Path(folder)):
            opened = open_file(
                path, device="cpu", context=CONTEXT, chunk=max(default_chunk(gpu.traits) for gpu in gpus)
            )
            for gpu in gpus:
                for routes, added in ROUTES:
                    judged = judge_file(opened, gpu, LEVELS, routes)
                    rates = (f"{level.rate:,.0f}" for level in judged.levels if level.rate is not None)
                    print(f"| {name}{added} | {gpu.name} | {' | '.join(rates)} |", flush=True)
    if options.peers:
        print()
        for line in beside_llama_cpp(gpus):
            print(line, flush=True)


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    yield "SmolLM2-135M, Q4_1", default_model()
    for name, shape in SHAPES.items():
        path = folder / f"{shape[0]}.gguf"
        write_llama(path, *shape)
        yield name, path


def write_llama(path: Path, width: int, layers: int, heads: int, kv_heads: int, depth: int, hidden: int) -> None:
    """A file of these shapes whose weights are a hole."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(2 * CONTEXT)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(depth)
    writer.add_rope_freq_base(500_000.0)
    ends = 0

    def add(name: str, *dims: int, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_0) -> None:
        nonlocal ends
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        nbytes = int(np.prod(dims)) // elements * size
        plain = kind == gguf.GGMLQuantizationType.F32
        shape = dims if plain else gguf.quant_shape_to_byte_shape(dims, kind)
        writer.add_tensor_info(name, shape, np.float32 if plain else np.uint8, nbytes, raw_dtype=kind)
        ends += -(-nbytes // 32) * 32

    add("token_embd.weight", VOCABULARY, width, kind=gguf.GGMLQuantizationType.Q6_K)
    for n in range(layers):
        add(f"blk.{n}.attn_q.weight", heads * depth, width)
        add(f"blk.{n}.attn_k.weight", kv_heads * depth, width)
        add(f"blk.{n}.attn_v.weight", kv_heads * depth, width)
        add(f"blk.{n}.attn_output.weight", width, heads * depth)
        add(f"blk.{n}.ffn_gate.weight", hidden, width)
        add(f"blk.{n}.ffn_up.weight", hidden, width)
        add(f"blk.{n}.ffn_down.weight", width, hidden)
        add(f"blk.{n}.attn_norm.weight", width, kind=gguf.GGMLQuantizationType.F32)
        add(f"blk.{n}.ffn_norm.weight", width, kind=gguf.GGMLQuantizationType.F32)
    add("output_norm.weight", width, kind=gguf.GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "r+b") as file:
        file.truncate(-(-path.stat().st_size // 32) * 32 + ends)


def _name(level: dict[str, int]) -> str:
    return f"{level['S']} token{'s' * (level['S'] > 1)} at {level['pos']}"


if __name__ == "__main__":
    main()
