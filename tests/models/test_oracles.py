"""Trained models, greedily, against the exact ids in ../shared/models; skipped where these files are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import cpu_session, exact_session, gpu_session, greedy, step
from gguf import GGUFWriter
from smollm2 import smollm2_file

from hightide.formats.gguf import GgufFile, read_gguf
from hightide.gpu.device import Device
from hightide.llm.models import build_graph

MODELS = Path(__file__).parents[3] / "shared" / "models"
STORIES, SMOLLM2 = MODELS / "stories260K", MODELS / "smollm2_oracle.json"
CHUNK = 16


def write_llama2c(source: Path, target: Path) -> None:
    """A llama2.c file as GGUF, in float32. Its rotary pairs are neighbours already, as GGUF has them."""
    dim, hidden, layers, heads, kv_heads, vocab, context = np.fromfile(source, np.int32, 7).tolist()
    weights = np.fromfile(source, np.float32, offset=7 * 4)
    kv_dim, at = dim // heads * kv_heads, 0

    def take(*dims: int) -> np.ndarray:
        nonlocal at
        at += int(np.prod(dims))
        return weights[at - int(np.prod(dims)) : at].reshape(dims)

    writer = GGUFWriter(target, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(dim)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(dim // heads)
    writer.add_tensor("token_embd.weight", take(abs(vocab), dim))
    per_layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (dim,),
        "attn_q": (dim, dim),
        "attn_k": (kv_dim, dim),
        "attn_v": (kv_dim, dim),
        "attn_output": (dim, dim),
        "ffn_norm": (dim,),
        "ffn_gate": (hidden, dim),
        "ffn_down": (dim, hidden),
        "ffn_up": (hidden, dim),
    }
    for name, dims in per_layer.items():
        for n, layer in enumerate(take(layers, *dims)):
            writer.add_tensor(f"blk.{n}.{name}.weight", layer)
    writer.add_tensor("output_norm.weight", take(dim))
    if vocab < 0:  # a negative vocabulary says that the head is not the embedding
        take(2, context, dim // heads // 2)  # tables of angles
        writer.add_tensor("output.weight", take(-vocab, dim))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> GgufFile:
    if not STORIES.is_dir():
        pytest.skip("no ../shared/models/stories260K")
    path = tmp_path_factory.mktemp("stories") / "stories260K.gguf"
    write_llama2c(STORIES / "stories260K.bin", path)
    return read_gguf(path)


@pytest.fixture(scope="module")
def story_ids(stories: GgufFile) -> list[int]:
    ids: list[int] = json.loads((STORIES / "oracle.json").read_text())["ids"]
    assert len(ids) >= 256
    return ids


def test_stories260k_on_the_gpu(stories: GgufFile, story_ids: list[int], device: Device) -> None:
    session = gpu_session(build_graph(stories, 512, CHUNK), device)
    assert greedy(session, story_ids[:1], len(story_ids) - 1, CHUNK) == story_ids[1:]


def test_stories260k_in_chunks_on_the_gpu(stories: GgufFile, story_ids: list[int], device: Device) -> None:
    session = gpu_session(build_graph(stories, 512, CHUNK), device)
    chosen: list[int] = []
    for size in (13, 1, 7, 16) * 8:
        _, ids = step(session, story_ids[len(chosen) : len(chosen) + size], len(chosen), size)
        chosen += ids.tolist()
        if len(chosen) + CHUNK >= len(story_ids):
            break
    assert chosen == story_ids[1 : len(chosen) + 1]


@pytest.mark.parametrize("session", [cpu_session, exact_session])
def test_stories260k_on_numpy(stories: GgufFile, story_ids: list[int], session: Any) -> None:
    got = greedy(session(build_graph(stories, 512, CHUNK)), story_ids[:1], len(story_ids) - 1, CHUNK)
    assert got == story_ids[1:]


@pytest.fixture(scope="module")
def smollm2() -> GgufFile:
    return read_gguf(smollm2_file())


@pytest.mark.slow
def test_smollm2_on_the_gpu(smollm2: GgufFile, device: Device) -> None:
    session = gpu_session(build_graph(smollm2, 256, CHUNK), device)
    for run in json.loads(SMOLLM2.read_text())["runs"]:
        assert greedy(session, run["prompt_ids"], len(run["new_ids"]), CHUNK) == run["new_ids"], run["name"]
    used = session.device_bytes()
    allowed = 1.15 * smollm2.path.stat().st_size + used["state"] + used["activations"]
    assert sum(used.values()) <= allowed


@pytest.mark.slow
def test_smollm2_on_numpy(smollm2: GgufFile) -> None:
    session = cpu_session(build_graph(smollm2, 64, CHUNK))
    for run in json.loads(SMOLLM2.read_text())["runs"]:
        assert greedy(session, run["prompt_ids"], len(run["new_ids"]), CHUNK) == run["new_ids"], run["name"]
