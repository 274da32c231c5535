"""Hugging Face folders of encoders, written from the GGUF files: the same vectors and scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from encoder_folders import BERT, ENCODERS, SIZES, encoder_folder, encoder_weights
from hf_folders import write_folder

from hightide import Embedder
from hightide.errors import HightideError, UnsupportedError
from hightide.formats.gguf import read_gguf
from hightide.formats.model_folder import read_folder
from hightide.llm.convert import convert_model


def add_pooling(folder: Path, **modes: Any) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))


def texts(name: str) -> list[list[int]]:
    with np.load(ENCODERS / f"{name}.npz") as arrays:
        return [part.tolist() for part in np.split(arrays["tokens"], np.cumsum(arrays["lengths"])[:-1])]


@pytest.mark.parametrize("name, mode", [("bert", "mean"), ("bert_cls", "cls"), ("nomic", "mean"), ("modern", "cls")])
def test_the_same_vectors(name: str, mode: str, tmp_path: Path) -> None:
    folder = encoder_folder(name, tmp_path)
    modes = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    add_pooling(folder, **{key: kind == mode for kind, key in modes.items()})
    with Embedder(ENCODERS / f"{name}.gguf", device="cpu") as ours, Embedder(folder, device="cpu") as theirs:
        assert ours.pooling == theirs.pooling == mode and ours.context == theirs.context == 64
        assert np.abs(ours.embed(texts(name)) - theirs.embed(texts(name))).max() < 2e-6


@pytest.mark.parametrize("name", ["roberta_rank", "modern_rank"])
def test_the_same_scores(name: str, tmp_path: Path) -> None:
    folder = encoder_folder(name, tmp_path)
    with Embedder(ENCODERS / f"{name}.gguf", device="cpu") as ours, Embedder(folder, device="cpu") as theirs:
        assert theirs.pooling == "rank" and ours.context == theirs.context == 64
        scores = [[e.engine.submit_text(t).result(60).vector[0] for t in texts(name)] for e in (ours, theirs)]
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-5)


def test_a_classifier_of_bert_reads_the_pooler(tmp_path: Path) -> None:
    rng, file = np.random.default_rng(1), read_gguf(ENCODERS / "bert.gguf")
    dense, bias, out = (rng.normal(size=dims).astype(np.float32) for dims in ((32, 32), (32,), (1, 32)))
    head = {"bert.pooler.dense.weight": dense, "bert.pooler.dense.bias": bias, "classifier.weight": out}
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **SIZES}
    folder = write_folder(tmp_path, config, encoder_weights(file, BERT, "bert.") | head)
    with np.load(ENCODERS / "bert.npz") as arrays:
        starts = np.concatenate([[0], np.cumsum(arrays["lengths"])[:-1]])
        first = arrays["rows"][starts]
    with Embedder(folder, device="cpu") as embedder:
        got = [embedder.engine.submit_text(text).result(60).vector[0] for text in texts("bert")]
    np.testing.assert_allclose(got, np.tanh(first @ dense.T + bias) @ out[0], rtol=1e-4, atol=1e-4)


def test_what_a_folder_says_of_pooling(tmp_path: Path) -> None:
    folder = encoder_folder("bert", tmp_path)
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
    folder = encoder_folder(name, tmp_path)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HightideError, match=says):
        read_folder(folder)


def test_a_converted_folder_gives_the_same(tmp_path: Path) -> None:
    """With its WordPiece vocabulary, and what it says of pooling."""
    folder, out = encoder_folder("bert", tmp_path / "folder"), tmp_path / "out.gguf"
    add_pooling(folder, pooling_mode="cls")
    marked = read_gguf(ENCODERS / "bert.gguf").metadata["tokenizer.ggml.tokens"]
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
