"""Hugging Face folders: the same graphs as GGUF files, and the logits that transformers gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import all_logits, error_of_range, exact_session
from hf_folders import VOCAB, folder_tensors, safetensors_bytes, write_byte_level, write_folder
from test_architectures import CHUNKS, CONTEXT, MAX_TOKENS, ON_CPU, golden, model
from typer.testing import CliRunner

from hightide import LLM
from hightide.cli import app
from hightide.errors import InputError, ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.formats.model_file import read_model
from hightide.formats.safetensors import read_safetensors
from hightide.llm.models import build_graph
from hightide.ops.blocks.layout import dequantize

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
GEMMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 9,
    "num_hidden_layers": 7,
    "model_type": "gemma3_text",
}
PHI = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
MISTRAL4 = {"model_type": "mistral4", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32}
LOCAL_AND_GLOBAL = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 20_000.0},
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONGROPE = {
    "rope_type": "longrope",
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0 + 0.05 * n for n in range(12)],
    "long_factor": [1.1 + 0.4 * n for n in range(12)],
}
# The models of make_gguf.py as configs: some as transformers 5 writes them, some as 4 did.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES},
    "llama_tied": {
        "model_type": "llama",
        **SIZES,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "rope_theta": 500.0,
    },
    "llama_llama3": {"model_type": "llama", **SIZES, "rope_scaling": LLAMA3, "rope_theta": 10_000.0, "head_dim": 32},
    "llama_linear": {"model_type": "llama", **SIZES, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama_bias": {"model_type": "llama", **SIZES, "attention_bias": True, "mlp_bias": True},
    "qwen2": {"model_type": "qwen2", **SIZES},
    "qwen2_yarn": {
        "model_type": "qwen2",
        **SIZES,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 1e4,
        },
    },
    "qwen3": {"model_type": "qwen3", **SIZES, "head_dim": 32, "rope_theta": 1_000_000.0, "tie_word_embeddings": True},
    "gemma3": GEMMA,
    "gemma3_scaled": {**GEMMA, "rope_parameters": LOCAL_AND_GLOBAL, "final_logit_softcapping": 3.0},
    "gemma3_global": {**GEMMA, "num_hidden_layers": 2, "sliding_window_pattern": 1},
    "phi3": {"model_type": "phi3", **PHI, "sliding_window": 9},
    "phi3_partial": {
        "model_type": "phi3",
        **PHI,
        "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.75},
    },
    "phi3_longrope": {
        "model_type": "phi3",
        **PHI,
        "rope_scaling": LONGROPE,
        "original_max_position_embeddings": 24,
        "sliding_window": 30,
        "tie_word_embeddings": True,
    },
}


def folder_of(name: str, folder: Path, **changes: Any) -> Path:
    sizes = {"num_hidden_layers": 2, "max_position_embeddings": 256, "vocab_size": 131}
    return write_folder(folder / name, sizes | CONFIGS[name] | changes, folder_tensors(model(name)))


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_of_folders_agree_with_transformers(name: str, tmp_path: Path) -> None:
    tokens, expected = golden(name)
    graph = build_graph(read_model(folder_of(name, tmp_path)), CONTEXT, MAX_TOKENS)
    assert error_of_range(all_logits(exact_session(graph), tokens, CHUNKS["odd"]), expected) <= ON_CPU


@pytest.mark.parametrize("name", CONFIGS)
def test_folders_are_the_same_as_gguf_files(name: str, tmp_path: Path) -> None:
    ours, theirs = read_model(folder_of(name, tmp_path)), model(name)
    assert ours.tensors.keys() == theirs.tensors.keys() and ours.architecture == theirs.architecture
    for tensor in theirs.tensors.values():
        expected = dequantize(tensor.data, tensor.type, tensor.dims)
        own = ours.tensors[tensor.name]
        np.testing.assert_allclose(dequantize(own.data, own.type, own.dims), expected, rtol=1e-6, atol=1e-6)
    for key, value in theirs.metadata.items():
        if key.startswith(f"{theirs.architecture}."):
            assert ours.metadata[key] == pytest.approx(value, rel=1e-6), key


def test_a_model_inside_a_multimodal_one(tmp_path: Path) -> None:
    text = {"num_hidden_layers": 7, "max_position_embeddings": 256, **GEMMA}
    tensors = {
        name.replace("model.", "model.language_model."): a for name, a in folder_tensors(model("gemma3")).items()
    }
    tensors["model.vision_tower.patch.weight"] = np.zeros((2, 2), np.float32)
    folder = write_folder(tmp_path / "both", {"model_type": "gemma3", "text_config": text}, tensors)
    tokens, expected = golden("gemma3")
    graph = build_graph(read_model(folder), CONTEXT, MAX_TOKENS)
    assert error_of_range(all_logits(exact_session(graph), tokens, CHUNKS["odd"]), expected) <= ON_CPU


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("llama", {"model_type": "mamba"}, "mamba model"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"rope_scaling": {"type": "wavy", "factor": 2.0}}, "wavy"),
        ("gemma3", {"query_pre_attn_scalar": 7}, "query_pre_attn_scalar"),
        ("gemma3", {"layer_types": ["full_attention", *["sliding_attention"] * 6]}, "even distances"),
    ],
)
def test_what_a_folder_asks_for_in_vain(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        build_graph(read_model(folder_of(name, tmp_path, **changes)), CONTEXT, MAX_TOKENS)


def test_shards(tmp_path: Path) -> None:
    folder = folder_of("llama", tmp_path)
    tensors = folder_tensors(model("llama"))
    whole = read_model(folder)
    folder.joinpath("model.safetensors").unlink()
    places = {name: f"model-{n % 3}.safetensors" for n, name in enumerate(tensors)}
    for file in set(places.values()):
        part = {name: array for name, array in tensors.items() if places[name] == file}
        folder.joinpath(file).write_bytes(safetensors_bytes(part))
    folder.joinpath("model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), "utf-8")
    parted = read_model(folder)
    assert parted.tensors.keys() == whole.tensors.keys()
    assert all(bytes(parted.tensors[n].data.view()) == bytes(whole.tensors[n].data.view()) for n in whole.tensors)


FOLDERS = Path(__file__).parent / "folders"
SAVED = ("cohere", "falcon_new", "gemma2", "gemma3", "gpt2", "gpt_neox", "granite", "llama", "mistral")
SAVED += ("lfm2", "phi3", "qwen2", "qwen3", "stablelm_norms", "cohere2", "mistral3")
MIXTURES = ("deepseek_v2", "deepseek_v3", "gpt_oss", "gpt_oss_mxfp4", "granitemoeshared", "lfm2_moe", "mixtral")
MIXTURES += ("qwen2_moe", "qwen3_moe")


def saved(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, logits) of a folder of make_folders.py, in float64."""
    with np.load(FOLDERS / f"{name}.npz") as arrays:
        return arrays["tokens"], arrays["logits"]


@pytest.mark.parametrize("name", SAVED + MIXTURES)
def test_folders_that_transformers_saved(name: str) -> None:
    tokens, expected = saved(name)
    graph = build_graph(read_model(FOLDERS / name), CONTEXT, MAX_TOKENS)
    assert error_of_range(all_logits(exact_session(graph), tokens, CHUNKS["odd"]), expected) <= ON_CPU


def test_an_lfm2_folder_as_it_is_published(tmp_path: Path) -> None:
    """Under the names that configs had before transformers knew the model."""
    config = json.loads((FOLDERS / "lfm2" / "config.json").read_text("utf-8"))
    for name in ("layer_types", "intermediate_size", "tie_word_embeddings", "rope_parameters"):
        del config[name]
    config |= {"full_attn_idxs": [1], "block_ff_dim": 80, "tie_embedding": True, "rope_theta": 1_000_000.0}

    def read(**changes: Any) -> GgufFile:
        (tmp_path / "config.json").write_text(json.dumps(config | changes), "utf-8")
        return read_model(tmp_path)

    shutil.copy(FOLDERS / "lfm2" / "model.safetensors", tmp_path)
    ours, theirs = read(), read_model(FOLDERS / "lfm2")
    assert ours.tensors.keys() == theirs.tensors.keys()
    fields = [{k: v for k, v in one.metadata.items() if k.startswith("lfm2.")} for one in (ours, theirs)]
    assert fields[0] == fields[1] and fields[0]["lfm2.feed_forward_length"] == 64
    with pytest.raises(UnsupportedError, match="conv_bias is True"):
        read(conv_bias=True)
    with pytest.raises(ProgramError, match="which of 2 layers are convolutions"):
        read(full_attn_idxs=None)


def changed(name: str, out: Path, **changes: Any) -> Path:
    """A saved folder with other values in its config; those of None are left out."""
    folder = out / name
    shutil.copytree(FOLDERS / name, folder)
    config = json.loads((folder / "config.json").read_text("utf-8")) | changes
    left = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(left), "utf-8")
    return folder


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("mistral3", {"text_config": MISTRAL4}, "model_type is 'mistral4'"),
        ("cohere2", {"layer_types": ["full_attention"] * 5}, "layer_types"),
        ("cohere2", {"attention_bias": True}, "attention_bias"),
        ("cohere2", {"layer_types": None, "sliding_window_pattern": 3}, "sliding_window_pattern"),
    ],
)
def test_what_a_saved_folder_asks_for_in_vain(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        read_model(changed(name, tmp_path, **changes))


def test_the_text_part_of_a_folder_that_sees() -> None:
    """mistral3 has a vision tower and a projector, which are left out."""
    names = read_safetensors(FOLDERS / "mistral3" / "model.safetensors").keys()
    assert any("vision_tower" in name for name in names) and any("projector" in name for name in names)
    file = read_model(FOLDERS / "mistral3")
    assert not any(name.startswith(("v.", "mm.")) for name in file.tensors) and "token_embd.weight" in file.tensors
    assert file.get("attention.temperature_scale") == 0.5


def test_a_window_in_some_layers_of_ministral(tmp_path: Path) -> None:
    """Without a difference up to its length; a window in all layers is one."""
    kinds = {"mixed": ["full_attention", "sliding_attention"], "all": ["sliding_attention"] * 2}
    found = {}
    for name, types in kinds.items():
        config = {"model_type": "ministral", "sliding_window": 32, "layer_types": types}
        file = read_model(folder_of("llama", tmp_path / name, **config))
        found[name] = file.get("context_length"), file.get("attention.sliding_window")
    assert found == {"mixed": (32, 0), "all": (256, 32)}


def folder_with_tokenizer(folder: Path) -> Path:
    """A small random llama with as many tokens as its tokenizer."""
    rng = np.random.default_rng(5)
    tensors = folder_tensors(model("llama"))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = rng.standard_normal((VOCAB, 64)).astype(np.float32)
    config = CONFIGS["llama"] | {"num_hidden_layers": 2, "max_position_embeddings": 256, "vocab_size": VOCAB}
    write_byte_level(write_folder(folder / "chatty", config, tensors))
    return folder / "chatty"


def test_a_folder_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with_tokenizer(tmp_path)
    with LLM(folder, device="cpu", context=64) as llm:
        assert llm.path.name == "chatty" and llm.tokenizer is not None
        assert set(llm.tokenizer.eos_ids) == {2, 3}  # of generation_config.json
        assert llm.tokenizer.decode(llm.encode([{"role": "user", "content": "the"}]), special=True) == (
            "<s>[user] the</s>[assistant]"
        )
        answer = llm.generate("the one", max_tokens=5, ignore_eos=True)
        assert len(answer.tokens) == 5
        llm.save_state(tmp_path / "state")
    monkeypatch.chdir(folder)
    with LLM(".", device="cpu", context=64) as llm:
        llm.load_state(tmp_path / "state")
        assert (
            llm.path.name == "chatty" and llm.generate("the one", max_tokens=5, ignore_eos=True).tokens == answer.tokens
        )


def test_commands_take_folders(tmp_path: Path) -> None:
    folder = folder_with_tokenizer(tmp_path)
    runner = CliRunner()
    said = runner.invoke(
        app, ["generate", str(folder), "the", "--max-tokens", "3", "--device", "cpu", "--context", "64"]
    )
    assert said.exit_code == 0, said.output
    shown = runner.invoke(app, ["inspect", f"{folder}/", "--context", "64"])
    assert shown.exit_code == 0 and "chatty" in shown.output
    done = runner.invoke(app, ["convert", str(folder), str(tmp_path / "out.gguf"), "--quantize", "q8_0"])
    assert done.exit_code == 0 and read_model(tmp_path / "out.gguf").tensors["output.weight"].type == "Q8_0"
    assert isinstance(runner.invoke(app, ["generate", str(tmp_path), "x"]).exception, InputError)
