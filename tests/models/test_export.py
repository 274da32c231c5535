"""`hightide export`: a GGUF file as a program gives what the exporter's quantised torch model gives.

Needs the extra `export` (torch and executorch); skipped without it, but for what is refused.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from smollm2 import smollm2_file
from typer.testing import CliRunner

from hightide import LLM
from hightide.cli import app
from hightide.errors import HightideError, InputError, UnsupportedError
from hightide.formats.gguf import GgufFile, read_gguf
from hightide.gpu.device import Device
from hightide.llm.export import export_gguf, read_checkpoint, tokenizer_path
from hightide.ops.blocks.layout import dequantize
from hightide.pte.program import load

HERE = Path(__file__).parent
ORACLE = HERE.parents[2] / "shared" / "models" / "smollm2_oracle.json"
HAS_EXPORTER = all(importlib.util.find_spec(name) is not None for name in ("torch", "executorch"))
needs_exporter = pytest.mark.skipif(not HAS_EXPORTER, reason="no torch and executorch: pip install 'hightide[export]'")
VOCAB = 132  # a multiple of 4, as the exporter wants; the models of this folder have one less
PROMPT = [3, 14, 15, 92, 65, 35, 89, 79]


def write_float_model(source: Path, target: Path, changes: dict[str, Any] | None = None) -> Path:
    """The model with float32 weights, one more token, and other fields."""
    file = read_gguf(source)
    writer = GGUFWriter(target, file.architecture)
    for key, value in (file.metadata | (changes or {})).items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif key != "general.architecture":
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add[type(value)](key, value)
    rng = np.random.default_rng(0)
    for name, tensor in file.tensors.items():
        weight = dequantize(tensor.data, tensor.type, tensor.dims)
        if name in ("token_embd.weight", "output.weight"):
            extra = rng.normal(size=(VOCAB - len(weight), weight.shape[1])).astype(np.float32)
            weight = np.concatenate([weight, extra * weight.std()])
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def eager_logits(model: Any, tokens: Sequence[int], position: int) -> np.ndarray:
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([tokens]), {"input_pos": torch.tensor([position])})
    return np.asarray(logits.reshape(-1, logits.shape[-1])[-1])


def eager_ids(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy ids; the prompt in one call."""
    ids, chunk, position = [], list(prompt), 0
    while len(ids) < count:
        ids.append(int(eager_logits(model, chunk, position).argmax()))
        position, chunk = position + len(chunk), ids[-1:]
    return ids


# A family each, and the scalings of angles that the exporter alone could not express.
FAMILIES = ["llama", "qwen2", "qwen3"]
MORE = ["llama_tied", "llama_llama3", "llama_linear", "qwen2_yarn", "phi3", "phi3_partial", "phi3_longrope"]


@needs_exporter
@pytest.mark.parametrize("name", FAMILIES + [pytest.param(name, marks=pytest.mark.slow) for name in MORE])
def test_a_small_model_gives_the_ids_of_the_eager_quantised_model(name: str, tmp_path: Path, device: Device) -> None:
    wide = {"phi3.attention.sliding_window": 256} if name.startswith("phi3") else {}
    source = write_float_model(HERE / f"{name}.gguf", tmp_path / "model.gguf", wide)
    eager = export_gguf(source, tmp_path / "out.pte", context=64, max_tokens=24, metadata={"get_bos_id": 5})
    program = load(tmp_path / "out.pte")
    assert program.metadata["get_vocab_size"] == VOCAB and program.metadata["get_bos_id"] == 5
    assert program.metadata["get_max_context_len"] == 64 and program.methods["forward"].inputs[0].dims == (1, 24)
    expected = eager_ids(eager, PROMPT, 40)
    for where in (None, "cpu"):
        llm = LLM(tmp_path / "out.pte", device=where)
        assert (llm.context, llm.decoder.max_rows, llm.decoder.vocab_size) == (64, 24, VOCAB)
        assert llm.generate(PROMPT, max_tokens=40).tokens == expected


@needs_exporter
@pytest.mark.parametrize("name", FAMILIES + MORE)
def test_the_unquantised_checkpoint_gives_the_logits_of_transformers(name: str) -> None:
    """Every weight is in its place, and the angles are right: what the exporter adds is quantisation alone."""
    import torch
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    with np.load(HERE / f"{name}.npz") as golden:
        tokens, logits = golden["tokens"], golden["logits"]
    file = read_gguf(HERE / f"{name}.gguf")
    if window := file.get("attention.sliding_window"):  # the exporter's model has none: so far it is the same
        tokens, logits = tokens[:window], logits[:window]
        file = replace(file, metadata=file.metadata | {"phi3.attention.sliding_window": 0})
    checkpoint = read_checkpoint(file, context=48)
    model = construct_transformer(ModelArgs(**checkpoint.params, max_context_len=48, generate_full_logits=True))
    weights = {key: torch.from_numpy(weight.copy()) for key, weight in checkpoint.weights.items()}
    model.load_state_dict(weights, strict=True)
    model.rope.freqs_cos, model.rope.freqs_sin = map(torch.from_numpy, (checkpoint.cos.copy(), checkpoint.sin.copy()))
    with torch.no_grad():
        got = model(torch.from_numpy(tokens.astype(np.int64))[None])[0].numpy()
    assert np.abs(got - logits).max() <= 1e-5 * np.ptp(logits)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return smollm2_file()


@needs_exporter
@pytest.mark.slow
def test_smollm2_gives_the_ids_of_the_eager_quantised_model(smollm2: Path, tmp_path: Path, device: Device) -> None:
    out = tmp_path / "smollm2.pte"
    eager = export_gguf(smollm2, out, context=256, max_tokens=64)
    llm, with_gguf = LLM(out), LLM(smollm2, context=256)
    assert llm.tokenizer is not None and with_gguf.tokenizer is not None
    assert llm.tokenizer.eos_ids == with_gguf.tokenizer.eos_ids
    for run in json.loads(ORACLE.read_text())["runs"]:
        expected = eager_ids(eager, run["prompt_ids"], 24)
        ends = set(llm.tokenizer.eos_ids)
        end = next((n for n, token in enumerate(expected) if token in ends), len(expected))
        assert llm.generate(run["prompt_ids"], max_tokens=24).tokens == expected[:end], run["name"]
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert llm.encode(messages) == with_gguf.encode(messages)


@needs_exporter
def test_the_command_writes_the_program_and_its_tokenizer(tmp_path: Path) -> None:
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *map(chr, range(ord("!"), ord("~") + 1)), "Ġ", "ab"]
    tokens += [f"<extra{n}>" for n in range(VOCAB - len(tokens))]
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token.startswith("<") and len(token) > 1 else 1 for token in tokens],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    source = write_float_model(HERE / "llama.gguf", tmp_path / "model.gguf", fields)
    out = tmp_path / "out.pte"
    result = CliRunner().invoke(app, ["export", str(source), str(out), "--context", "32", "--max-tokens", "8"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [str(out)]
    beside, inside = LLM(out, device="cpu"), LLM(source, device="cpu")
    assert beside.tokenizer is not None and tokenizer_path(out).stat().st_size < 10_000
    assert beside.encode("cab 3") == inside.encode("cab 3") == [1, 69, tokens.index("ab"), tokens.index("Ġ"), 21]
    assert beside.encode([{"role": "user", "content": "ab"}]) == [1, tokens.index("ab")]
    metadata = load(out).metadata
    assert metadata["get_bos_id"] == 1 and metadata["get_eos_ids"] == list(beside.tokenizer.eos_ids) == [2, 0]


# ---- what is refused, without the exporter

REFUSED: list[tuple[str, dict[str, Any], type[HightideError], str]] = [
    ("gemma3", {}, UnsupportedError, "is a gemma3 model; only llama, qwen2, qwen3, phi3 can be exported"),
    ("phi3", {}, UnsupportedError, "sees the last 9 tokens only"),
    ("llama_bias", {}, UnsupportedError, "the exporter's Llama has no place for"),
    ("llama", {}, UnsupportedError, "131 rows; only multiples of 4"),
    ("llama", {"group_size": 40}, InputError, "not a multiple of 40"),
    ("llama", {"group_size": 0}, InputError, "group_size cannot be 0"),
    ("llama", {"embedding_bits": 3}, InputError, "embedding_bits must be 4 or 8, not 3"),
    ("llama", {"context": 300}, InputError, "has a context of 256 tokens; it cannot use 300"),
    ("llama", {"context": 64, "max_tokens": 64}, InputError, "max_tokens must be between 2 and 63, not 64"),
]


@pytest.mark.parametrize("name, options, kind, message", REFUSED)
def test_what_cannot_be_exported_is_refused_in_one_sentence(
    name: str, options: dict[str, Any], kind: type[HightideError], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message) as caught:
        export_gguf(HERE / f"{name}.gguf", tmp_path / "out.pte", **options)
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


def test_the_name_of_the_program_is_checked_first(tmp_path: Path) -> None:
    for name in ("out.gguf", "missing/out.pte"):
        with pytest.raises(InputError, match="must end in"):
            export_gguf(HERE / "llama.gguf", tmp_path / name)


@pytest.mark.skipif(HAS_EXPORTER, reason="the extra is there")
def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    source = write_float_model(HERE / "llama.gguf", tmp_path / "model.gguf")
    with pytest.raises(UnsupportedError, match=r"pip install 'hightide\[export\]'"):
        export_gguf(source, tmp_path / "out.pte")


@pytest.mark.parametrize("name", ["llama", "llama_llama3", "qwen2_yarn", "qwen3", "phi3_longrope"])
def test_a_checkpoint_has_every_weight_once(name: str, tmp_path: Path) -> None:
    wide = {"phi3.attention.sliding_window": 256} if name.startswith("phi3") else {}
    file: GgufFile = read_gguf(write_float_model(HERE / f"{name}.gguf", tmp_path / "model.gguf", wide))
    checkpoint = read_checkpoint(file, context=64)
    angles = sum(tensor.dims[0] for key, tensor in file.tensors.items() if key.startswith("rope_"))
    there = sum(int(np.prod(tensor.dims)) for tensor in file.tensors.values()) - angles
    tied = 0 if "output.weight" in file.tensors else checkpoint.weights["output.weight"].size
    assert sum(weight.size for weight in checkpoint.weights.values()) - tied == there
    assert checkpoint.cos.shape == checkpoint.sin.shape and len(checkpoint.cos) == 64
