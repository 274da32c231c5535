"""Folders of mixtures of experts: how their experts are stacked, taken apart, quantised and written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import all_logits, error_of_range, exact_session, gpu_session
from hf_folders import safetensors_bytes, write_folder
from test_architectures import CHUNKS, CONTEXT, MAX_TOKENS, ON_CPU, ON_GPU
from test_folders import FOLDERS, MIXTURES, changed, saved

from hightide import LLM
from hightide.errors import ProgramError, UnsupportedError
from hightide.formats import gguf_writer
from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.formats.model_file import read_model
from hightide.formats.model_tensors import read_rows
from hightide.formats.quantizers import quantized
from hightide.formats.safetensors import read_safetensors
from hightide.gpu.device import Device
from hightide.llm.convert import convert_model
from hightide.llm.models import build_graph
from hightide.ops.blocks.layout import dequantize


def array(tensor: GgufTensor) -> np.ndarray:
    return dequantize(tensor.data, tensor.type, tensor.dims)


def stored(name: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors of a saved folder as integers of their size, and their types."""
    tensors = read_safetensors(FOLDERS / name / "model.safetensors")
    sizes = {"BF16": np.uint16, "U8": np.uint8}
    arrays = {n: np.frombuffer(t.data.view(), sizes[t.type]).reshape(t.dims) for n, t in tensors.items()}
    return arrays, {n: t.type for n, t in tensors.items()}


def rewritten(name: str, out: Path, arrays: dict[str, np.ndarray], kinds: dict[str, str]) -> Path:
    folder = changed(name, out)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(arrays, kinds))
    return folder


def same(ours: GgufFile, theirs: GgufFile) -> bool:
    assert ours.tensors.keys() == theirs.tensors.keys()
    return all(bytes(t.data.view()) == bytes(theirs.tensors[name].data.view()) for name, t in ours.tensors.items())


@pytest.mark.parametrize("name", ["deepseek_v3", "gpt_oss_mxfp4", "qwen2_moe"])
def test_logits_of_mixtures_on_the_gpu(name: str, device: Device) -> None:
    tokens, expected = saved(name)
    session = gpu_session(build_graph(read_model(FOLDERS / name), CONTEXT, MAX_TOKENS), device)
    assert error_of_range(all_logits(session, tokens, CHUNKS["odd"]), expected) <= ON_GPU


@pytest.mark.parametrize("name", MIXTURES)
def test_converted_mixtures_give_the_same_logits(name: str, tmp_path: Path) -> None:
    convert_model(FOLDERS / name, tmp_path / "out.gguf")
    written = read_model(tmp_path / "out.gguf")
    for tensor in written.tensors.values():
        if tensor.name.endswith(".bias") or "ffn_gate_inp" in tensor.name or len(tensor.dims) < 2:
            assert tensor.type == "F32", tensor.name
    tokens, expected = saved(name)
    graph = build_graph(written, CONTEXT, MAX_TOKENS)
    assert error_of_range(all_logits(exact_session(graph), tokens, CHUNKS["odd"]), expected) <= ON_CPU


def test_experts_are_quantised_and_what_chooses_them_is_not(tmp_path: Path) -> None:
    file = quantized(read_model(FOLDERS / "qwen2_moe"), "Q8_0")
    kinds = {name.removeprefix("blk.1."): tensor.type for name, tensor in file.tensors.items()}
    assert {kinds[f"ffn_{side}_exps.weight"] for side in ("gate", "up", "down")} == {"Q8_0"}
    assert {kinds["ffn_gate_inp.weight"], kinds["ffn_gate_inp_shexp.weight"]} == {"BF16"}
    own, exact = file.tensors["blk.1.ffn_up_exps.weight"], read_model(FOLDERS / "qwen2_moe")
    np.testing.assert_allclose(array(own), array(exact.tensors[own.name]), atol=0.01)
    with LLM(FOLDERS / "qwen2_moe", device="cpu", context=48, quantize="q8_0") as llm:
        held = llm.generate([5, 6, 7], max_tokens=4).tokens
    convert_model(FOLDERS / "qwen2_moe", tmp_path / "out.gguf", "q8_0")
    with LLM(tmp_path / "out.gguf", device="cpu", context=48) as llm:
        assert llm.generate([5, 6, 7], max_tokens=4).tokens == held


def test_blocks_of_gpt_oss_stay_as_they_are() -> None:
    """Numbers of 4 bits: a sign, two bits of exponent, one more; two neighbours in a byte."""
    file = quantized(read_model(FOLDERS / "gpt_oss_mxfp4"), "Q4_0")
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    arrays, _ = stored("gpt_oss_mxfp4")
    of = "model.layers.1.mlp.experts"
    for side, rows in (("gate", slice(0, None, 2)), ("up", slice(1, None, 2)), ("down", slice(None))):
        source = f"{of}.{'down' if side == 'down' else 'gate_up'}_proj"
        blocks, scales = arrays[f"{source}_blocks"], arrays[f"{source}_scales"]
        values = np.stack([numbers[blocks & 15], numbers[blocks >> 4]], -1).reshape(*scales.shape, 32)
        expected = (values * 2.0 ** (scales[..., None].astype(float) - 127)).reshape(*scales.shape[:2], -1)[:, rows]
        tensor = file.tensors[f"blk.1.ffn_{side}_exps.weight"]
        assert tensor.type == "MXFP4"
        np.testing.assert_array_equal(array(tensor), expected)


def test_experts_in_one_tensor_are_the_same_as_in_many(tmp_path: Path) -> None:
    """As transformers 5 holds them."""
    arrays, kinds = stored("qwen3_moe")
    for layer in range(2):
        base = f"model.layers.{layer}.mlp.experts"
        each = {
            side: np.stack([arrays.pop(f"{base}.{n}.{side}_proj.weight") for n in range(4)])
            for side in ("gate", "up", "down")
        }
        arrays[f"{base}.gate_up_proj"] = np.concatenate([each["gate"], each["up"]], axis=1)
        arrays[f"{base}.down_proj"] = each["down"]
        kinds |= {f"{base}.gate_up_proj": "BF16", f"{base}.down_proj": "BF16"}
    assert same(read_model(rewritten("qwen3_moe", tmp_path, arrays, kinds)), read_model(FOLDERS / "qwen3_moe"))


def test_a_layer_that_guesses_ahead_is_left_out(tmp_path: Path) -> None:
    """DeepSeek V3 has one behind its last, with experts and an embedding of its own."""
    arrays, kinds = stored("deepseek_v3")
    for name in ("mlp.experts.0.up_proj.weight", "eh_proj.weight", "embed_tokens.weight"):
        arrays[f"model.layers.2.{name}"], kinds[f"model.layers.2.{name}"] = np.zeros((2, 2), np.uint16), "BF16"
    assert same(read_model(rewritten("deepseek_v3", tmp_path, arrays, kinds)), read_model(FOLDERS / "deepseek_v3"))


def test_a_missing_expert_is_said(tmp_path: Path) -> None:
    arrays, kinds = stored("mixtral")
    del arrays["model.layers.1.block_sparse_moe.experts.2.w1.weight"]
    with pytest.raises(ProgramError, match=r"lacks some of the tensors of blk\.1\.ffn_gate_exps\.weight"):
        read_model(rewritten("mixtral", tmp_path, arrays, kinds))


def test_blocks_without_scales_are_said(tmp_path: Path) -> None:
    arrays, kinds = stored("gpt_oss_mxfp4")
    scales = arrays.pop("model.layers.0.mlp.experts.down_proj_scales")
    with pytest.raises(ProgramError, match="down_proj_scales"):
        read_model(rewritten("gpt_oss_mxfp4", tmp_path / "a", arrays, kinds))
    arrays["model.layers.0.mlp.experts.down_proj_scales"] = scales[:, 1:]
    with pytest.raises(ProgramError, match="do not fit together"):
        read_model(rewritten("gpt_oss_mxfp4", tmp_path / "b", arrays, kinds))


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("qwen2_moe", {"norm_topk_prob": True}, "norm_topk_prob"),
        ("qwen3_moe", {"norm_topk_prob": None}, "norm_topk_prob"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, "mlp_only_layers"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("qwen3_moe", {"model_type": "qwen3_mo"}, "qwen3_mo model .* the nearest is qwen3_moe"),
        ("gpt_oss", {"swiglu_limit": 5.0}, "swiglu_limit"),
        ("gpt_oss", {"layer_types": ["full_attention"] * 2}, "layer_types"),
        ("gpt_oss", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "truncate"),
        ("gpt_oss_mxfp4", {"quantization_config": {"quant_method": "quark"}}, "quark .quant_method.; gptq, awq, mxfp4"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave"),
    ],
)
def test_what_a_mixture_asks_for_in_vain(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        read_model(changed(name, tmp_path, **changes))


def test_heads_that_do_not_fit_the_latent_matrix(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="kv_b_proj"):
        read_model(changed("deepseek_v3", tmp_path, v_head_dim=40))


def test_experts_are_written_some_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates and ups of gpt-oss, [experts, in, out]: they are split, turned and quantised on the way."""
    rng = np.random.default_rng(2)
    experts, width = 16, 256
    both = rng.standard_normal((experts, width, 2 * width)).astype(np.float32)  # 8 MB
    config = {"model_type": "gpt_oss", "num_hidden_layers": 1, "hidden_size": width, "num_attention_heads": 4}
    folder = write_folder(tmp_path / "x", config, {"model.layers.0.mlp.experts.gate_up_proj": both})
    monkeypatch.setattr(gguf_writer, "PIECE", 32 << 10)
    tracemalloc.start()
    try:
        convert_model(folder, tmp_path / "out.gguf", "q8_0")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < both.nbytes / 4  # some experts, not all
    written = read_model(tmp_path / "out.gguf").tensors["blk.0.ffn_up_exps.weight"]
    assert written.dims == (experts, width, width)
    got = read_rows(written, 0, experts * width).reshape(written.dims)
    np.testing.assert_allclose(got, both[:, :, 1::2].swapaxes(1, 2), atol=0.02)
