"""Each architecture against transformers: logits of all tokens, from one session, in chunks of any size.

make_gguf.py and convert_models.py made the files, and the goldens from their dequantised weights.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import all_logits, error_of_range, exact_session, gpu_session, graph_in_parts, step

from hightide.formats.gguf import GgufFile, read_gguf
from hightide.formats.model_tensors import given
from hightide.gpu.device import Device
from hightide.llm.models import ARCHITECTURES, build_graph
from hightide.llm.models.model_builder import MAX_KEEP
from hightide.ops.blocks.layout import dequantize
from hightide.runtime.gpu_session import GpuSession

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.gguf"))
CONTEXT, SHORT_CONTEXT, MAX_TOKENS = 48, 24, MAX_KEEP
# Transformers takes norms, softmax and angles in float32 whatever the weights are in: 1e-6 of the range, measured.
ON_CPU, ON_GPU = 1e-5, 1e-4
CHUNKS = {
    "odd": (7, 1, 13, 2, 1, 1, 3, 16),
    "one by one": (1,) * CONTEXT,
    "whole": (MAX_TOKENS,) * 3,
}
# (context, name of the golden); a model whose rotary factors depend on the context has two.
CASES = [(name, CONTEXT, "logits") for name in NAMES] + [("phi3_longrope", SHORT_CONTEXT, "short_logits")]


def model(name: str) -> GgufFile:
    return read_gguf(HERE / f"{name}.gguf")


def golden(name: str, which: str = "logits") -> tuple[np.ndarray, np.ndarray]:
    """(tokens, logits [tokens, vocabulary])"""
    with np.load(HERE / f"{name}.npz") as arrays:
        logits = arrays[which]
        return arrays["tokens"][: len(logits)], logits


def changed(file: GgufFile, **fields: Any) -> GgufFile:
    """The file with other fields of its architecture; None takes one away."""
    new = {f"{file.architecture}.{key.replace('__', '.')}": value for key, value in fields.items()}
    metadata = {k: v for k, v in (file.metadata | new).items() if v is not None}
    return replace(file, metadata=metadata)


def test_every_architecture_has_a_model() -> None:
    assert {model(name).architecture for name in NAMES} == set(ARCHITECTURES)


@pytest.mark.parametrize("name, context, which", CASES)
def test_logits_agree_with_transformers_in_float64(name: str, context: int, which: str) -> None:
    tokens, expected = golden(name, which)
    graph = build_graph(model(name), context, MAX_TOKENS)
    for sizes in CHUNKS.values():
        got = all_logits(exact_session(graph), tokens, sizes)
        assert error_of_range(got, expected) <= ON_CPU


@pytest.mark.parametrize("name, context, which", CASES)
def test_logits_agree_with_transformers_on_the_gpu(name: str, context: int, which: str, device: Device) -> None:
    tokens, expected = golden(name, which)
    session = gpu_session(build_graph(model(name), context, MAX_TOKENS), device)
    for sizes in CHUNKS.values():  # the second and third over the caches of the one before
        session.poison()
        got = all_logits(session, tokens, sizes)
        assert error_of_range(got, expected) <= ON_GPU


# What each model is there for: with the field changed, its logits must be clearly others.
MATTERS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"attention__layer_norm_rms_epsilon": 0.1}),
    ("llama_tied", {"rope__freq_base": 10_000.0}),
    ("llama_linear", {"rope__scaling__factor": 1.0}),
    ("qwen2", {"rope__freq_base": 1000.0}),
    ("qwen2_yarn", {"rope__scaling__type": "none"}),
    ("qwen2_yarn", {"rope__scaling__type": "linear"}),
    ("qwen2_yarn", {"rope__scaling__yarn_attn_factor": 1.0}),
    ("qwen2_yarn", {"rope__scaling__original_context_length": 256}),
    ("qwen3", {"rope__freq_base": 10_000.0}),
    ("gemma3", {"attention__sliding_window": 10}),
    ("gemma3", {"attention__sliding_window": None}),
    ("gemma3", {"attention__sliding_window_pattern": 7}),
    ("gemma3", {"rope__freq_base": 10_000.0}),
    ("gemma3_scaled", {"rope__freq_base_swa": 10_000.0}),
    ("gemma3_scaled", {"rope__scaling__factor": 1.0}),
    ("gemma3_scaled", {"final_logit_softcapping": None}),
    ("gemma3_global", {"attention__sliding_window": 9}),
    ("phi3", {"attention__sliding_window": 8}),
    ("phi3", {"attention__sliding_window": 0}),
    ("phi3_partial", {"rope__dimension_count": 32}),
    ("phi3_longrope", {"rope__scaling__attn_factor": 1.0}),
    ("phi3_longrope", {"rope__scaling__original_context_length": 64}),
    ("phi3_longrope", {"attention__sliding_window": 0}),
    ("gemma", {"attention__layer_norm_rms_epsilon": 0.1}),
    ("gemma2", {"attention__sliding_window": None}),
    ("gemma2", {"attention__sliding_window": 10}),
    ("gemma2", {"attention__sliding_window_pattern": 4}),
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma2", {"final_logit_softcapping": None}),
    ("gemma3n", {"activation_sparsity_scale": [-math.inf] * 5}),
    ("gemma3n", {"altup__active_idx": 1}),
    ("gemma3n", {"attention__sliding_window": 0}),
    ("gemma3n", {"rope__freq_base_swa": 500.0}),
    ("gemma3n", {"final_logit_softcapping": None}),
    ("mistral3", {"attention__temperature_scale": None}),
    ("mistral3", {"rope__scaling__yarn_log_multiplier": None}),
    ("mistral3", {"rope__scaling__factor": 1.0}),
    ("granite", {"attention__scale": None}),
    ("granite", {"embedding_scale": None}),
    ("granite", {"residual_scale": None}),
    ("granite", {"logit_scale": 1.0}),
    ("granite", {"rope__scaling__finetuned": False}),
    ("olmo2", {"rope__freq_base": 1000.0}),
    ("olmo3", {"attention__sliding_window": 0}),
    ("olmo3", {"attention__sliding_window_pattern": 5}),
    ("olmo3", {"rope__scaling__type": "none"}),
    ("olmo3", {"rope__freq_base_swa": None}),
    ("smollm3", {"rope__freq_base": 10_000.0}),
    ("gpt2", {"attention__layer_norm_epsilon": 0.1}),
    ("starcoder2", {"rope__freq_base": 1000.0}),
    ("phi2", {"rope__dimension_count": 8}),
    ("falcon", {"rope__freq_base": 1000.0}),
    ("falcon_40b", {"attention__layer_norm_epsilon": 0.1}),
    ("glm4", {"rope__dimension_count": 16}),
    ("command_r", {"logit_scale": None}),
    ("command_r_plus", {"attention__layer_norm_epsilon": 0.1}),
    ("cohere2", {"attention__sliding_window": 8}),
    ("cohere2", {"attention__sliding_window_pattern": 5}),
    ("stablelm", {"rope__dimension_count": 8}),
    ("gptneox", {"use_parallel_residual": False}),
    ("gptneox", {"rope__dimension_count": 8}),
    ("gptneox_sequential", {"use_parallel_residual": True}),
    ("lfm2", {"rope__freq_base": 100.0}),
    ("lfm2", {"attention__sliding_window": 9}),
    ("lfm2moe", {"expert_used_count": 3}),
    ("lfm2moe", {"expert_weights_scale": 2.0}),
    ("mixtral", {"expert_used_count": 1}),
    ("qwen2moe", {"expert_used_count": 3}),
    ("qwen3moe", {"expert_used_count": 1}),
    ("gpt_oss", {"expert_used_count": 3}),
    ("gpt_oss", {"attention__sliding_window": 8}),
    ("gpt_oss", {"rope__scaling__type": "none"}),
    ("granitemoe", {"attention__scale": None}),
    ("granitemoe", {"embedding_scale": None}),
    ("granitemoe", {"residual_scale": None}),
    ("granitemoe", {"logit_scale": None}),
    ("deepseek2", {"expert_weights_scale": 2.0}),
    ("deepseek2_groups", {"expert_group_used_count": 1}),
    ("deepseek2_groups", {"expert_weights_norm": False}),
    ("deepseek2_groups", {"expert_gating_func": 1}),
    ("deepseek2_groups", {"rope__scaling__yarn_log_multiplier": None}),
]


@pytest.mark.parametrize("name, fields", MATTERS)
def test_the_goldens_depend_on_what_they_check(name: str, fields: dict[str, Any]) -> None:
    tokens, expected = golden(name)
    graph = build_graph(changed(model(name), **fields), CONTEXT, MAX_TOKENS)
    assert error_of_range(all_logits(exact_session(graph), tokens, CHUNKS["whole"]), expected) > 100 * ON_GPU


OPTIONAL = [
    ("llama_llama3", "rope_freqs.weight"),
    ("qwen2", "blk.1.attn_k.bias"),
    ("gpt2", "blk.1.ffn_norm.bias"),
    ("phi2", "output.bias"),
    ("glm4", "blk.0.attn_q.bias"),
    ("qwen2moe", "blk.0.ffn_gate_inp_shexp.weight"),
    ("gpt_oss", "blk.0.ffn_down_exps.bias"),
    ("gpt_oss", "blk.1.attn_sinks.weight"),
    ("deepseek2_groups", "blk.1.exp_probs_b.bias"),
    ("lfm2moe", "blk.1.exp_probs_b.bias"),
]


@pytest.mark.parametrize("name, missing", OPTIONAL)
def test_the_goldens_depend_on_optional_tensors(name: str, missing: str) -> None:
    tokens, expected = golden(name)
    file = model(name)
    without = replace(file, tensors={key: tensor for key, tensor in file.tensors.items() if key != missing})
    got = all_logits(exact_session(build_graph(without, CONTEXT, MAX_TOKENS)), tokens, CHUNKS["whole"])
    assert len(without.tensors) < len(file.tensors) and error_of_range(got, expected) > 10 * ON_GPU


@pytest.mark.parametrize("kept", [False, True], ids=["alone", "beside"])
@pytest.mark.parametrize("name", ["deepseek2", "deepseek2_groups"])
def test_keys_and_values_of_all_heads_in_one_matrix(name: str, kept: bool) -> None:
    """As older converters wrote them, and as some wrote them beside the matrices of each head."""
    file = model(name)
    tensors = dict(file.tensors)
    for n in range(file.get("block_count")):
        own = [tensors[f"blk.{n}.attn_{which}_b.weight"] for which in "kv"]
        keys, values = (dequantize(tensor.data, tensor.type, tensor.dims) for tensor in own)
        joint = np.concatenate([keys.swapaxes(1, 2), values], axis=1).reshape(-1, keys.shape[1])
        tensors[f"blk.{n}.attn_kv_b.weight"] = given(f"blk.{n}.attn_kv_b.weight", joint)
        if not kept:
            del tensors[own[0].name], tensors[own[1].name]
    file = replace(file, tensors=tensors)
    if not kept:
        lengths = {f"attention__{of}_length": file.get(f"attention.{of}_length_mla") for of in ("key", "value")}
        heads = file.get("attention.head_count")
        without = dict.fromkeys(("attention__key_length_mla", "attention__value_length_mla"))
        file = changed(file, **lengths, **without, attention__head_count_kv=heads)
    tokens, expected = golden(name)
    session = exact_session(build_graph(file, CONTEXT, MAX_TOKENS))
    assert error_of_range(all_logits(session, tokens, CHUNKS["odd"]), expected) <= ON_CPU


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_the_last_rows_alone_are_the_same(name: str, device: Device) -> None:
    tokens, expected = golden(name)
    session = gpu_session(build_graph(model(name), CONTEXT, MAX_TOKENS), device)
    for keep in (0, 1, 5):
        logits, _ = step(session, tokens[:11], 0, keep)
        assert logits.shape == (keep, expected.shape[1])
        assert not keep or error_of_range(logits, expected[11 - keep : 11]) <= ON_GPU


@pytest.mark.parametrize(
    "name",
    ["llama", "llama_tied", "qwen2", "qwen3", "gemma3", "phi3", "gpt2", "glm4", "mixtral", "gpt_oss", "deepseek2"],
)
def test_weights_in_parts_give_the_same_logits(name: str, device: Device) -> None:
    file, (tokens, _) = model(name), golden(name)
    parted, whole = graph_in_parts(file, CONTEXT, MAX_TOKENS, 2048), build_graph(file, CONTEXT, MAX_TOKENS)
    assert len(parted.values) > len(whole.values)
    exact = [all_logits(exact_session(graph), tokens, CHUNKS["odd"]) for graph in (parted, whole)]
    assert error_of_range(*exact) <= 1e-12
    np.testing.assert_array_equal(
        *(all_logits(gpu_session(graph, device), tokens, CHUNKS["odd"]) for graph in (parted, whole))
    )


@pytest.mark.parametrize("name", NAMES)
def test_gpu_memory_is_the_file_the_caches_and_the_activations(name: str, device: Device) -> None:
    file = model(name)
    heads = file.get("attention.head_count")
    depth = file.get("attention.key_length", file.get("embedding_length") // heads)
    both = depth + file.get("attention.value_length", depth)
    found = file.get("attention.head_count_kv", heads)
    kv_heads = found if isinstance(found, list) else [found] * file.get("block_count")
    caches = sum(count * both or file.get("embedding_length") for count in kv_heads) * CONTEXT * 4  # or a convolution's
    used = gpu_session(build_graph(file, CONTEXT, MAX_TOKENS), device).device_bytes()
    tables = 2 * 2 * CONTEXT * depth * 4  # of angles, at most two pairs: nothing next to a model that is not tiny
    assert used["state"] == caches
    assert used["weights"] <= 1.01 * file.path.stat().st_size + tables


def test_activations_do_not_grow_with_layers(device: Device) -> None:
    def activations(name: str) -> int:
        session: GpuSession = gpu_session(build_graph(model(name), CONTEXT, MAX_TOKENS), device)
        return session.device_bytes()["activations"]

    assert activations("gemma3_27b") <= activations("gemma3")  # 62 layers and 7
