"""Hugging Face folders of encoders, written from the GGUF files: the same vectors and scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hf_folders import write_folder

from hightide import Embedder
from hightide.errors import HightideError, UnsupportedError
from hightide.formats.gguf import GgufFile, read_gguf
from hightide.formats.model_folder import read_folder
from hightide.llm.convert import convert_model
from hightide.ops.blocks.layout import dequantize

HERE = Path(__file__).parent / "encoders"
BERT = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "encoder.layer.{n}.attention.self.query",
    "attn_k": "encoder.layer.{n}.attention.self.key",
    "attn_v": "encoder.layer.{n}.attention.self.value",
    "attn_output": "encoder.layer.{n}.attention.output.dense",
    "attn_output_norm": "encoder.layer.{n}.attention.output.LayerNorm",
    "ffn_up": "encoder.layer.{n}.intermediate.dense",
    "ffn_down": "encoder.layer.{n}.output.dense",
    "layer_output_norm": "encoder.layer.{n}.output.LayerNorm",
    "cls": "classifier.dense",
    "cls.output": "classifier.out_proj",
}
NOMIC = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "emb_ln",
    "attn_qkv": "encoder.layers.{n}.attn.Wqkv",
    "attn_output": "encoder.layers.{n}.attn.out_proj",
    "attn_output_norm": "encoder.layers.{n}.norm1",
    "ffn_up": "encoder.layers.{n}.mlp.fc11",
    "ffn_gate": "encoder.layers.{n}.mlp.fc12",
    "ffn_down": "encoder.layers.{n}.mlp.fc2",
    "layer_output_norm": "encoder.layers.{n}.norm2",
}
MODERN = {
    "token_embd": "model.embeddings.tok_embeddings",
    "token_embd_norm": "model.embeddings.norm",
    "attn_norm": "model.layers.{n}.attn_norm",
    "attn_qkv": "model.layers.{n}.attn.Wqkv",
    "attn_output": "model.layers.{n}.attn.Wo",
    "ffn_norm": "model.layers.{n}.mlp_norm",
    "ffn_up": "model.layers.{n}.mlp.Wi",
    "ffn_down": "model.layers.{n}.mlp.Wo",
    "output_norm": "model.final_norm",
    "cls": "head.dense",
    "cls.norm": "head.norm",
    "cls.output": "classifier",
}
SIZES = {
    "vocab_size": 131,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def weights(file: GgufFile, names: Mapping[str, str], prefix: str = "") -> dict[str, np.ndarray]:
    found = {}
    for tensor in file.tensors.values():
        body, _, end = tensor.name.rpartition(".")
        layer, kind = body.split(".", 2)[1:] if body.startswith("blk.") else ("", body)
        name = names[kind].replace("{n}", layer)
        found[f"{'' if kind.startswith('cls') else prefix}{name}.{end}"] = dequantize(
            tensor.data, tensor.type, tensor.dims
        )
    return found


def folder_of(name: str, folder: Path) -> Path:
    file = read_gguf(HERE / f"{name}.gguf")
    if name == "nomic":
        names = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 64, "n_positions": 64, "vocab_size": 131}
        config = {"model_type": "nomic_bert", **names, "rotary_emb_base": 300.0, "activation_function": "swiglu"}
        return write_folder(folder, config, weights(file, NOMIC))
    if name.startswith("modern"):
        kind = "ModernBertForSequenceClassification" if name == "modern_rank" else "ModernBertModel"
        config = {"model_type": "modernbert", "architectures": [kind], **SIZES, "num_hidden_layers": 4}
        config |= {"local_attention": 10, "classifier_pooling": "mean"}
        config |= {"global_rope_theta": 2000.0, "local_rope_theta": 50.0}
        return write_folder(folder, config, weights(file, MODERN))
    if name == "roberta_rank":
        tensors = weights(file, BERT, "roberta.")
        table = tensors["roberta.embeddings.position_embeddings.weight"]
        tensors["roberta.embeddings.position_embeddings.weight"] = np.concatenate([np.full((2, 32), 9, "f4"), table])
        config = {"model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"], **SIZES}
        return write_folder(folder, config | {"max_position_embeddings": 66, "pad_token_id": 1}, tensors)
    config = {"model_type": "bert", "architectures": ["BertModel"], **SIZES}
    unused = {"embeddings.position_ids": np.arange(64, dtype=np.int32)[None]}
    unused |= {f"pooler.dense.{end}": np.zeros((32, 32)[: 2 - (end == "bias")], "f4") for end in ("weight", "bias")}
    old = {key.replace("LayerNorm.weight", "LayerNorm.gamma"): value for key, value in weights(file, BERT).items()}
    return write_folder(folder, config, old | unused)


def add_pooling(folder: Path, **modes: Any) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))


def texts(name: str) -> list[list[int]]:
    with np.load(HERE / f"{name}.npz") as arrays:
        return [part.tolist() for part in np.split(arrays["tokens"], np.cumsum(arrays["lengths"])[:-1])]


@pytest.mark.parametrize("name, mode", [("bert", "mean"), ("bert_cls", "cls"), ("nomic", "mean"), ("modern", "cls")])
def test_the_same_vectors(name: str, mode: str, tmp_path: Path) -> None:
    folder = folder_of(name, tmp_path)
    modes = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    add_pooling(folder, **{key: kind == mode for kind, key in modes.items()})
    with Embedder(HERE / f"{name}.gguf", device="cpu") as ours, Embedder(folder, device="cpu") as theirs:
        assert ours.pooling == theirs.pooling == mode and ours.context == theirs.context == 64
        assert np.abs(ours.embed(texts(name)) - theirs.embed(texts(name))).max() < 2e-6


@pytest.mark.parametrize("name", ["roberta_rank", "modern_rank"])
def test_the_same_scores(name: str, tmp_path: Path) -> None:
    folder = folder_of(name, tmp_path)
    with Embedder(HERE / f"{name}.gguf", device="cpu") as ours, Embedder(folder, device="cpu") as theirs:
        assert theirs.pooling == "rank" and ours.context == theirs.context == 64
        scores = [[e.engine.submit_text(t).result(60).vector[0] for t in texts(name)] for e in (ours, theirs)]
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-5)


def test_a_classifier_of_bert_reads_the_pooler(tmp_path: Path) -> None:
    rng, file = np.random.default_rng(1), read_gguf(HERE / "bert.gguf")
    dense, bias, out = (rng.normal(size=dims).astype(np.float32) for dims in ((32, 32), (32,), (1, 32)))
    head = {"bert.pooler.dense.weight": dense, "bert.pooler.dense.bias": bias, "classifier.weight": out}
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **SIZES}
    folder = write_folder(tmp_path, config, weights(file, BERT, "bert.") | head)
    with np.load(HERE / "bert.npz") as arrays:
        starts = np.concatenate([[0], np.cumsum(arrays["lengths"])[:-1]])
        first = arrays["rows"][starts]
    with Embedder(folder, device="cpu") as embedder:
        got = [embedder.engine.submit_text(text).result(60).vector[0] for text in texts("bert")]
    np.testing.assert_allclose(got, np.tanh(first @ dense.T + bias) @ out[0], rtol=1e-4, atol=1e-4)


def test_what_a_folder_says_of_pooling(tmp_path: Path) -> None:
    folder = folder_of("bert", tmp_path)
    assert "bert.pooling_type" not in read_folder(folder).metadata
    add_pooling(folder, pooling_mode="lasttoken")
    assert read_folder(folder).metadata["bert.pooling_type"] == 3
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(UnsupportedError, match="pools rows in another way than mean, cls, lasttoken"):
        read_folder(folder)


@pytest.mark.parametrize(
    "name, changes, says",
    [
        ("bert", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("modern", {"norm_bias": True}, "norm_bias is True"),
        ("nomic", {"activation_function": "gelu"}, "activation_function is 'gelu'"),
        ("roberta_rank", {"pad_token_id": 70}, "the table of positions has dims"),
    ],
)
def test_configs_that_are_refused(name: str, changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    folder = folder_of(name, tmp_path)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HightideError, match=says):
        read_folder(folder)


def test_a_converted_folder_gives_the_same(tmp_path: Path) -> None:
    """With its WordPiece vocabulary, and what it says of pooling."""
    folder, out = folder_of("bert", tmp_path / "folder"), tmp_path / "out.gguf"
    add_pooling(folder, pooling_mode="cls")
    marked = read_gguf(HERE / "bert.gguf").metadata["tokenizer.ggml.tokens"]
    tokens = [t if n < 5 else t[1:] if t.startswith("▁") else f"##{t}" for n, t in enumerate(marked)]
    model = tokenizers.models.WordPiece({t: n for n, t in enumerate(tokens)}, unk_token="[UNK]")
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.add_special_tokens(tokens[:5])
    (folder / "tokenizer.json").write_text(backend.to_str(), "utf-8")
    convert_model(folder, out)
    given = ["the cat sat", "Naïve dog!", "x"]
    with Embedder(folder, device="cpu") as ours, Embedder(out, device="cpu") as theirs:
        assert ours.pooling == theirs.pooling == "cls"
        assert [theirs.tokenizer.encode_whole(text) for text in given] == [backend.encode(text).ids for text in given]
        assert ours.tokenizer.encode_pair("the", "cat") == theirs.tokenizer.encode_pair("the", "cat")
        np.testing.assert_allclose(ours.embed(given), theirs.embed(given), atol=1e-6)
