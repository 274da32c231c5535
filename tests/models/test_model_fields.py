"""Fields that differ from layer to layer, and files that no model can be made of, which say why."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import all_logits, error_of_range, exact_session
from test_architectures import CHUNKS, CONTEXT, MAX_TOKENS, ON_CPU, changed, golden, model

from hightide.errors import HightideError, ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.formats.model_tensors import given
from hightide.graph.blob import Blob
from hightide.graph.values import LiteralValue
from hightide.llm.export import read_checkpoint
from hightide.llm.models import ARCHITECTURES, build_graph
from hightide.ops.blocks.layout import dequantize

ROOT = Path(__file__).resolve().parents[2]


def logits_of(file: GgufFile, tokens: np.ndarray) -> np.ndarray:
    return all_logits(exact_session(build_graph(file, CONTEXT, MAX_TOKENS)), tokens, CHUNKS["whole"])


def with_arrays(file: GgufFile, changes: dict[str, Callable[[np.ndarray], np.ndarray]]) -> GgufFile:
    """The file with some tensors changed, in float32."""
    tensors = dict(file.tensors)
    for name, change in changes.items():
        old = tensors[name]
        data = np.ascontiguousarray(change(dequantize(old.data, old.type, old.dims)), np.float32).tobytes()
        dims = change(np.empty(old.dims, np.float32)).shape
        tensors[name] = GgufTensor(name, "F32", dims, Blob(data, 0, len(data)))
    return replace(file, tensors=tensors)


def without(file: GgufFile, *names: str) -> GgufFile:
    return replace(file, tensors={name: tensor for name, tensor in file.tensors.items() if name not in names})


def test_a_layer_may_have_more_heads_and_more_units_than_the_others() -> None:
    """Every head and unit of layer 1 comes twice, with half the weight in what it adds: the logits stay."""
    file, (tokens, expected) = model("llama"), golden("llama")
    _, depth, hidden = 4, 16, file.get("feed_forward_length")

    def each_head_twice(w: np.ndarray) -> np.ndarray:
        return np.repeat(w.reshape(-1, depth, w.shape[1]), 2, axis=0).reshape(-1, w.shape[1])

    def each_head_half(w: np.ndarray) -> np.ndarray:
        return np.repeat(w.reshape(len(w), -1, depth), 2, axis=1).reshape(len(w), -1) / 2

    twice = with_arrays(
        file,
        {
            **dict.fromkeys((f"blk.1.attn_{name}.weight" for name in "qkv"), each_head_twice),
            "blk.1.attn_output.weight": each_head_half,
            "blk.1.ffn_gate.weight": lambda w: np.repeat(w, 2, axis=0),
            "blk.1.ffn_up.weight": lambda w: np.repeat(w, 2, axis=0),
            "blk.1.ffn_down.weight": lambda w: np.repeat(w, 2, axis=1) / 2,
        },
    )
    by_layer = {"attention__head_count": [4, 8], "attention__head_count_kv": [2, 4]}
    twice = changed(twice, feed_forward_length=[hidden, 2 * hidden], **by_layer)
    assert error_of_range(logits_of(twice, tokens), expected) <= ON_CPU
    with pytest.raises(UnsupportedError, match="other heads in some layers"):
        read_checkpoint(twice, CONTEXT)


def test_joined_matrices_have_the_sizes_of_their_layer() -> None:
    file, (tokens, expected) = model("phi3"), golden("phi3")
    hidden = file.get("feed_forward_length")
    twice = with_arrays(
        file,
        {
            "blk.0.ffn_up.weight": lambda w: np.repeat(w, 2, axis=0),
            "blk.0.ffn_down.weight": lambda w: np.repeat(w, 2, axis=1) / 2,
        },
    )
    twice = changed(twice, feed_forward_length=[2 * hidden, hidden])
    assert error_of_range(logits_of(twice, tokens), expected) <= ON_CPU


@pytest.mark.parametrize("name, pattern", [("gemma3", 6), ("gemma2", 2), ("cohere2", 4)])
def test_windows_may_be_given_by_layer(name: str, pattern: int) -> None:
    file, (tokens, expected) = model(name), golden(name)
    by_layer = [(n + 1) % pattern != 0 for n in range(file.get("block_count"))]
    assert (
        error_of_range(logits_of(changed(file, attention__sliding_window_pattern=by_layer), tokens), expected) <= ON_CPU
    )
    with pytest.raises(ProgramError, match="sliding_window_pattern has 1 items for"):
        build_graph(changed(file, attention__sliding_window_pattern=[True]), CONTEXT, MAX_TOKENS)


def test_a_gemma_2_with_the_layers_of_the_27b_model_scales_by_its_width() -> None:
    file = model("gemma2")
    layers = {name.split(".")[1] for name in file.tensors if name.startswith("blk.")}
    tensors = {name: tensor for name, tensor in file.tensors.items() if not name.startswith("blk.")}
    for n in range(46):
        prefix = f"blk.{n % len(layers)}."
        found = {k: v for k, v in file.tensors.items() if k.startswith(prefix)}
        tensors |= {f"blk.{n}.{name.removeprefix(prefix)}": tensor for name, tensor in found.items()}
    graph = build_graph(changed(replace(file, tensors=tensors), block_count=46), CONTEXT, MAX_TOKENS)
    scales = [graph.values[call.args["scale"]] for call in graph.calls if call.name == "hightide.attention.default"]
    wanted = 1 / math.sqrt(file.get("embedding_length") / file.get("attention.head_count"))
    assert len(scales) == 46
    assert all(isinstance(scale, LiteralValue) and scale.value == wanted for scale in scales)


def test_layers_that_guess_ahead_are_left_out() -> None:
    file, (tokens, expected) = model("glm4"), golden("glm4")
    extra = {name.replace("blk.0.", "blk.2."): t for name, t in file.tensors.items() if name.startswith("blk.0.")}
    longer = changed(replace(file, tensors=file.tensors | extra), block_count=3, nextn_predict_layers=1)
    assert error_of_range(logits_of(longer, tokens), expected) <= ON_CPU


def test_keys_of_layers_that_share_those_of_others_are_left_out() -> None:
    """As in the published files, which have them."""
    file, (tokens, expected) = model("gemma3n"), golden("gemma3n")
    names = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
    extra = {f"blk.4.{name}": file.tensors[f"blk.1.{name}"] for name in names}
    assert not extra.keys() & file.tensors.keys()
    assert error_of_range(logits_of(replace(file, tensors=file.tensors | extra), tokens), expected) <= ON_CPU


def test_parts_of_a_file_that_have_nothing_to_do_with_logits_are_left_out() -> None:
    file, (tokens, expected) = model("qwen3"), golden("qwen3")
    more = file
    for name in ("cls.output.weight", "v.blk.0.attn_q.weight", "mm.0.weight", "rope_factors_short.weight"):
        more = with_extra(more, name)
    assert error_of_range(logits_of(more, tokens), expected) <= ON_CPU
    pooled = with_extra(more, "dense_2.weight")
    assert build_graph(pooled, CONTEXT, MAX_TOKENS, headless=True)
    with pytest.raises(UnsupportedError, match=r"dense_2\.weight"):
        build_graph(pooled, CONTEXT, MAX_TOKENS)


def of_type(file: GgufFile, name: str, type: str) -> GgufFile:
    return replace(file, tensors=file.tensors | {name: replace(file.tensors[name], type=type)})


def named(file: GgufFile, architecture: str) -> GgufFile:
    return replace(file, metadata=file.metadata | {"general.architecture": architecture})


def with_extra(file: GgufFile, name: str) -> GgufFile:
    return replace(file, tensors=file.tensors | {name: file.tensors["output_norm.weight"]})


def joint_of_seven_rows(file: GgufFile) -> GgufFile:
    """A DeepSeek file of an older converter, cut short."""
    joint = given("blk.0.attn_kv_b.weight", np.zeros((7, 32), np.float32))
    left = without(file, "blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight")
    return replace(left, tensors=left.tensors | {joint.name: joint})


REFUSED: list[tuple[str, Callable[[GgufFile], GgufFile], type[HightideError], str]] = [
    ("llama", lambda f: named(f, "qwen22"), UnsupportedError, "is a qwen22 model; .*the nearest is qwen2"),
    ("llama", lambda f: named(f, "mamba"), UnsupportedError, "is a mamba model; llama, .* are supported$"),
    (
        "llama",
        lambda f: of_type(f, "output.weight", "Q8_1"),
        UnsupportedError,
        "output.weight is Q8_1.*nearest is Q8_0",
    ),
    (
        "llama",
        lambda f: with_extra(f, "blk.0.attn_gate.weight"),
        UnsupportedError,
        "has tensor blk.0.attn_gate.weight, which",
    ),
    (
        "llama",
        lambda f: without(f, "blk.1.attn_q.weight"),
        ProgramError,
        "no tensor blk.1.attn_q.weight; the nearest is blk",
    ),
    ("llama", lambda f: changed(f, block_count=None), ProgramError, "block_count is missing"),
    (
        "llama",
        lambda f: changed(f, attention__head_count=[4]),
        ProgramError,
        "head_count has 1 items, none for layer 1",
    ),
    (
        "llama",
        lambda f: changed(f, attention__head_count=[4, 0]),
        ProgramError,
        r"head_count\[1\] is 0|is 0, not a positive",
    ),
    (
        "llama",
        lambda f: changed(f, embedding_length=[64, 64]),
        UnsupportedError,
        "embedding_length differs from layer to layer",
    ),
    (
        "falcon",
        lambda f: changed(f, attention__max_alibi_bias=8.0),
        UnsupportedError,
        "max_alibi_bias is 8.0, which is not",
    ),
    (
        "gptneox",
        lambda f: changed(f, use_parallel_residual=3),
        ProgramError,
        "use_parallel_residual is 3, neither true",
    ),
    ("gemma2", lambda f: changed(f, block_count=1 << 31), ProgramError, "too few for 2147483648 layers"),
    ("glm4", lambda f: changed(f, block_count=1 << 31), ProgramError, "too few for 2147483648 layers"),
    ("glm4", lambda f: changed(f, nextn_predict_layers=1 << 31), ProgramError, "nextn_predict_layers is 2147483648"),
    ("gemma3n", lambda f: changed(f, activation_sparsity_scale=[1.0]), ProgramError, "no number for layer 1"),
    (
        "gemma3n",
        lambda f: changed(f, attention__shared_kv_layers=4),
        ProgramError,
        "no layer before 1 has keys and values",
    ),
    ("glm4", lambda f: changed(f, rope__dimension_sections=[4, 4, 4, 0]), UnsupportedError, "part of a vision model"),
    (
        "lfm2",
        lambda f: changed(f, attention__causal=False),
        UnsupportedError,
        "gives vectors, not answers: lfm2 encoders",
    ),
    (
        "lfm2",
        lambda f: changed(f, shortconv__l_cache=3),
        ProgramError,
        r"conv.weight has dims \[32, 4\], not \[32, 3\]",
    ),
    ("lfm2", lambda f: changed(f, attention__head_count_kv=[0, 2]), ProgramError, "has 2 items, none for layer 2"),
    ("lfm2moe", lambda f: changed(f, expert_gating_func=1), UnsupportedError, "by function 1; only 2 is supported"),
    ("deepseek2", joint_of_seven_rows, ProgramError, r"attn_kv_b.weight \[7, 32\] does not have 4 heads"),
    (
        "gpt2",
        lambda f: changed(f, context_length=1024),
        ProgramError,
        "a context of 1024 tokens, but has learned 256 positions",
    ),
    (
        "llama",
        lambda f: changed(f, attention__head_count=None),
        ProgramError,
        "missing; the nearest is attention.head_count_kv",
    ),
    (
        "mistral3",
        lambda f: changed(f, rope__scaling__original_context_length=None),
        ProgramError,
        "original_context_length is missing",
    ),
]


@pytest.mark.parametrize("name, damage, kind, message", REFUSED)
def test_what_does_not_run_says_why(
    name: str, damage: Callable[[GgufFile], GgufFile], kind: type[HightideError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        build_graph(damage(model(name)), CONTEXT, MAX_TOKENS)
    assert "\n" not in str(caught.value)


def test_a_model_whose_queries_grow_is_not_exported() -> None:
    with pytest.raises(UnsupportedError, match="scales its queries by their positions"):
        read_checkpoint(changed(model("llama"), attention__temperature_scale=0.1), CONTEXT)


def test_the_page_of_models_is_current() -> None:
    generator: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "make_models_doc.py"))
    page = generator["DOC"].read_text("utf-8")
    assert page == generator["doc_text"](), "docs/models.md is out of date: run scripts/make_models_doc.py"
    assert all(page.count(f"| `{name}` |") == 1 for name in ARCHITECTURES)
