"""LoRA adapters of a server: requests ask for them by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hf_folders import VOCAB, folder_tensors, safetensors_bytes, write_byte_level, write_folder
from running_server import running

from hightide import LLM
from hightide.formats.gguf import read_gguf

LLAMA = Path(__file__).parents[1] / "models" / "llama.gguf"


def chatty(folder: Path) -> tuple[Path, Path]:
    """A small model with a tokenizer, and an adapter of it."""
    rng = np.random.default_rng(5)
    tensors = folder_tensors(read_gguf(LLAMA))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = rng.standard_normal((VOCAB, 64)).astype(np.float32)
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    model, adapter = write_folder(folder / "chatty", config, tensors), folder / "style"
    write_byte_level(model)
    adapter.mkdir()
    adapter.joinpath("adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 8}), "utf-8")
    module = "base_model.model.model.layers.1.mlp.down_proj.lora_"
    sides = {f"{module}A.weight": rng.standard_normal((4, 96)), f"{module}B.weight": rng.standard_normal((64, 4))}
    data = safetensors_bytes({name: array.astype(np.float32) for name, array in sides.items()})
    adapter.joinpath("adapter_model.safetensors").write_bytes(data)
    return model, adapter


@pytest.mark.slow
def test_requests_ask_for_adapters(tmp_path: Path) -> None:
    model, adapter = chatty(tmp_path)
    expected = {}
    for weight in (0.0, 1.0):
        with LLM(model, merge={str(adapter): weight}, device="cpu", context=64) as llm:
            expected[weight] = llm.generate("the one", max_tokens=6, ignore_eos=True).text
    assert expected[0.0] != expected[1.0]
    options = ["--device", "cpu", "--context", 64, "--adapter", f"style={adapter}"]
    with running(tmp_path, model, *options) as server:
        body = {"model": "chatty", "prompt": "the one", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
        for weight in (1.0, 0.0, 1.0):
            said = server.post("/v1/completions", body | {"adapters": {"style": weight}}).json()
            assert said["choices"][0]["text"] == expected[weight]
        assert server.post("/v1/completions", body).json()["choices"][0]["text"] == expected[0.0]
        for wrong in ({"other": 1.0}, {"style": "much"}, 3):
            refused = server.post("/v1/completions", body | {"adapters": wrong})
            assert refused.status_code == 400, refused.text
