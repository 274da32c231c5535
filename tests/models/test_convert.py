"""`hightide convert`, quantised weights, and GGUF models in several files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from decode import all_logits, error_of_range, exact_session
from gguf import GGMLQuantizationType, GGUFWriter, quants
from hf_folders import write_byte_level, write_folder, write_sentencepiece
from test_architectures import CHUNKS, CONTEXT, MAX_TOKENS, ON_CPU, golden, model
from test_folders import folder_of

from hightide import LLM
from hightide.errors import InputError, ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.formats.gguf_writer import add_fields
from hightide.formats.model_file import read_model
from hightide.formats.model_tensors import read_rows
from hightide.formats.quantizers import q4_k, quantized
from hightide.llm.convert import convert_model, tokenizer_fields
from hightide.llm.models import build_graph
from hightide.llm.tokenizer import Tokenizer


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.mark.parametrize("name", ["llama_llama3", "gemma3_scaled", "phi3_longrope"])
def test_a_converted_folder_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    convert_model(folder_of(name, tmp_path), out)
    tokens, expected = golden(name)
    graph = build_graph(read_model(out), CONTEXT, MAX_TOKENS)
    assert error_of_range(all_logits(exact_session(graph), tokens, CHUNKS["odd"]), expected) <= ON_CPU
    assert {path.name for path in tmp_path.glob("*")} == {name, "out.gguf"}  # nothing half written


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K"])
def test_a_quantised_folder_is_what_its_file_is(kind: str, tmp_path: Path) -> None:
    folder, out = folder_of("llama", tmp_path), tmp_path / "out.gguf"
    convert_model(folder, out, kind.lower())
    written, held = read_model(out), quantized(read_model(folder), kind)
    assert {tensor.type for tensor in written.tensors.values()} >= {"F32", "Q8_0"}
    for name, tensor in written.tensors.items():
        if len(tensor.dims) > 1:
            assert tensor.type == held.tensors[name].type
            assert bytes(tensor.data.view()) == bytes(held.tensors[name].data.view())
            every = bytes(held.tensors[name].data.view())  # in pieces that are no rows
            pieces = [
                bytes(held.tensors[name].data.region(at, min(37, len(every) - at))) for at in range(0, len(every), 37)
            ]
            assert b"".join(pieces) == every


@pytest.mark.parametrize("shape", ["normal", "laplace", "uniform", "negative"])
def test_q4_k_is_closer_than_q4_0(shape: str) -> None:
    rng = np.random.default_rng(3)
    made = {
        "normal": rng.standard_normal((16, 512)),
        "laplace": rng.laplace(size=(16, 512)),
        "uniform": rng.random((16, 512)),
        "negative": -rng.random((16, 512)),
    }[shape].astype(np.float32)
    near = quants.dequantize(q4_k(made), GGMLQuantizationType.Q4_K)
    far = quants.dequantize(quants.quantize(made, GGMLQuantizationType.Q4_0), GGMLQuantizationType.Q4_0)
    assert rms(near - made) < 0.87 * rms(far - made) < 0.1 * rms(made)


def test_q4_k_of_nothing_and_of_zeros() -> None:
    assert q4_k(np.zeros((0, 256), np.float32)).shape == (0, 144)
    assert not quants.dequantize(q4_k(np.zeros((2, 256), np.float32)), GGMLQuantizationType.Q4_K).any()


def test_rows_of_256_become_q4_k(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((6, 512)).astype(np.float32)
    config = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 512, "num_attention_heads": 2}
    file = read_model(write_folder(tmp_path / "x", config, {"model.layers.0.mlp.down_proj.weight": weight}))
    tensor = quantized(file, "Q4_K").tensors["blk.0.ffn_down.weight"]
    assert tensor.type == "Q4_K" and tensor.data.length == 6 * 2 * 144
    assert rms(read_rows(tensor, 2, 3) - weight[2:5]) < 0.08


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="q4_0, q8_0, q4_k"):
        convert_model(folder_of("llama", tmp_path), tmp_path / "out.gguf", "q3_k")
    with pytest.raises(InputError, match="must end in"):
        convert_model(folder_of("llama", tmp_path), tmp_path / "out.bin")
    with pytest.raises(InputError, match="neither"):
        convert_model(tmp_path, tmp_path / "out.gguf")


def test_a_model_answers_with_quantised_weights(tmp_path: Path) -> None:
    with LLM(folder_of("llama", tmp_path), device="cpu", context=48, quantize="q8_0") as llm:
        held = llm.generate([5, 6, 7], max_tokens=4).tokens
    convert_model(tmp_path / "llama", tmp_path / "out.gguf", "q8_0")
    with LLM(tmp_path / "out.gguf", device="cpu", context=48) as llm:
        assert llm.generate([5, 6, 7], max_tokens=4).tokens == held


# ---- tokenizers


@pytest.mark.parametrize("write", [write_byte_level, write_sentencepiece])
def test_the_tokenizer_of_a_folder_is_converted(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    own = Tokenizer.from_file(tmp_path / "tokenizer.json")
    said = Tokenizer.from_gguf(tokenizer_fields(tmp_path / "tokenizer.json", 300))
    text = " the other house, 12 times\n\n  in Ünter den Linden 🌊"
    assert said.encode(text) == own.encode(text) and said.decode(own.encode(text)) == text
    assert (said.bos_id, set(own.eos_ids) - {3}, said.add_bos) == (own.bos_id, set(said.eos_ids), own.add_bos)
    assert said.chat_template == own.chat_template and said.vocab_size == 300
    with pytest.raises(UnsupportedError, match="tokens, but the model has 5"):
        tokenizer_fields(tmp_path / "tokenizer.json", 5)


def test_a_cut_that_gguf_has_no_name_for(tmp_path: Path) -> None:
    write_byte_level(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "[aeiou]"},
        "behavior": "Isolated",
        "invert": False,
    }
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(UnsupportedError, match="no name for"):
        tokenizer_fields(file, 300)


# ---- several files


def split(file: GgufFile, folder: Path, count: int) -> list[Path]:
    """As llama-gguf-split writes them: the first file has the fields."""
    paths = [folder / f"model-{n + 1:05}-of-{count:05}.gguf" for n in range(count)]
    tensors = list(file.tensors.values())
    for n, path in enumerate(paths):
        writer = GGUFWriter(path, file.architecture)
        if n == 0:
            add_fields(writer, {key: value for key, value in file.metadata.items() if key != "general.architecture"})
        writer.add_uint16("split.no", n)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(tensors))
        for tensor in tensors[n::count]:
            data = np.frombuffer(tensor.data.view(), np.uint8).reshape(*tensor.dims[:-1], -1)
            writer.add_tensor(tensor.name, data, raw_dtype=GGMLQuantizationType[tensor.type])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_any_of_several_files_opens_all(tmp_path: Path) -> None:
    whole = model("llama")
    for path in split(whole, tmp_path, 3):
        file = read_model(path)
        assert file.get("block_count") == whole.get("block_count")
        assert {name: bytes(t.data.view()) for name, t in file.tensors.items()} == {
            name: bytes(t.data.view()) for name, t in whole.tensors.items()
        }


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    paths = split(model("llama"), tmp_path, 3)
    paths[1].unlink()
    for path in (paths[0], paths[2]):
        with pytest.raises(ProgramError, match=r"model-00002-of-00003\.gguf is missing"):
            read_model(path)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    paths = split(model("llama"), tmp_path, 2)
    renamed = tmp_path / "other.gguf"
    shutil.copy(paths[0], renamed)
    with pytest.raises(ProgramError, match="its name does not end in"):
        read_model(renamed)
    shutil.copy(paths[0], paths[1])
    with pytest.raises(ProgramError, match="file 2 of 2"):
        read_model(paths[0])
