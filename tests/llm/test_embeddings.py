"""Vectors of texts: against the logits that transformers makes of them, in batches of any kind, and what goes wrong.

Logits are a matrix times the vector of a row, so the matrix times a vector must point where the golden logits do; where
rows are averaged, where the average of theirs does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_models import with_pooling
from scripted_models import letters_tokenizer

from hightide import LLM, Engine
from hightide.errors import DeviceLostError, HightideError, InputError, UnsupportedError
from hightide.formats.gguf import read_gguf
from hightide.llm.tokenizer import Tokenizer
from hightide.ops.blocks.layout import dequantize

MODELS = Path(__file__).parents[1] / "models"
ON_CPU, ON_GPU = 2e-6, 2e-5  # of the length of a vector


def open_embedder(where: str | None, name: str = "qwen3", **options: Any) -> Engine:
    given = {"context": 48, "chunk": 16, "max_sequences": 4, "pooling": "last"} | options
    return Engine(MODELS / f"{name}.gguf", device=where, **given)


def golden(name: str) -> tuple[list[int], np.ndarray]:
    with np.load(MODELS / f"{name}.npz") as arrays:
        return arrays["tokens"].tolist(), arrays["logits"].astype(np.float64)


def head(name: str) -> np.ndarray:
    tensors = read_gguf(MODELS / f"{name}.gguf").tensors
    tensor = tensors.get("output.weight", tensors["token_embd.weight"])
    return dequantize(tensor.data, tensor.type, tensor.dims).astype(np.float64)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("name", ["llama", "llama_tied", "qwen2", "qwen3", "gemma3", "phi3", "gpt2", "command_r"])
def test_vectors_are_what_logits_are_made_of(name: str, pooling: str) -> None:
    check_against_logits(name, pooling, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("name", ["qwen3", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_vectors_are_so_on_the_gpu(name: str, pooling: str, device: object) -> None:
    check_against_logits(name, pooling, None)


def check_against_logits(name: str, pooling: str, where: str | None) -> None:
    tokens, logits = golden(name)
    weight = head(name)
    lengths = (1, 7, 16, 17, len(tokens))
    with open_embedder(where, name, pooling=pooling) as engine:
        vectors = engine.embed([tokens[:length] for length in lengths])
        assert engine.stats().pages_used == 0
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for vector, length in zip(vectors, lengths, strict=True):
        wanted = logits[length - 1] if pooling == "last" else logits[:length].mean(0)
        assert np.abs(unit(weight @ vector) - unit(wanted)).max() < (1e-5 if where else 1e-4)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_vectors_do_not_depend_on_what_else_is_asked(pooling: str, where: str | None) -> None:
    """Texts with equal beginnings, more of them than pages, and one longer than a step."""
    rng = np.random.default_rng(0)
    begin = rng.integers(0, 131, 20).tolist()
    texts = [begin[: rng.integers(1, 20)] + rng.integers(0, 131, rng.integers(0, 28)).tolist() for _ in range(40)]
    with open_embedder(where, pooling=pooling, max_sequences=1) as engine:
        alone = np.array([engine.embed([text])[0] for text in texts])
    pages = 16 * 1024 * 5
    with open_embedder(where, pooling=pooling, kv_memory=pages, max_sequences=8) as engine:
        together = engine.embed(texts)
        stats = engine.stats()
    assert np.abs(together - alone).max() < (ON_CPU if where else ON_GPU)
    assert (stats.pages_used, stats.new_tokens) == (0, 0)
    assert bool(stats.prefix_tokens) == (pooling == "last")


def test_a_file_says_how(tmp_path: Path, where: str | None) -> None:
    tokens, _ = golden("qwen3")
    with open_embedder(where, pooling="mean") as engine:
        wanted = engine.embed([tokens])
    model = with_pooling(MODELS / "qwen3.gguf", tmp_path / "mean.gguf", "qwen3", 1)
    with Engine(model, device=where, context=48, chunk=16) as engine:
        assert engine.pooling == "mean"
        assert np.abs(engine.embed([tokens]) - wanted).max() < 1e-5
    with pytest.raises(UnsupportedError, match="gives embeddings, not answers"):
        LLM(model, device=where)
    none = with_pooling(MODELS / "qwen3.gguf", tmp_path / "none.gguf", "qwen3", 0)
    with Engine(none, device=where, context=48) as engine:
        assert engine.pooling == "" and len(engine.generate([tokens[:9]], max_tokens=3)[0].tokens) == 3
    rank = with_pooling(MODELS / "qwen3.gguf", tmp_path / "rank.gguf", "qwen3", 4)
    with pytest.raises(UnsupportedError, match=r"pools its rows in the way 4; mean \(1\) and last \(3\)"):
        Engine(rank, device=where)


def test_a_text_ends_as_the_model_wants(tmp_path: Path) -> None:
    """Some want an end token behind a text to be embedded; a prompt, which goes on, has none."""
    plain = Tokenizer.from_file(letters_tokenizer(tmp_path / "tokenizer.json"))
    assert plain.encode_whole("ab") == plain.encode("ab")
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "<end>", "ab"],
        "tokenizer.ggml.token_type": [1, 1, 3, 1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }
    closing = Tokenizer.from_gguf(fields | {"tokenizer.ggml.add_eos_token": True})
    assert (closing.encode("ab"), closing.encode_whole("ab"), closing.encode_whole("")) == ([3], [3, 2], [2])
    assert Tokenizer.from_gguf(fields).encode_whole("ab") == [3]


@pytest.fixture
def embedder(where: str | None, tmp_path: Path) -> Iterator[Engine]:
    with open_embedder(where, tokenizer=letters_tokenizer(tmp_path / "tokenizer.json")) as engine:
        yield engine


def test_texts_and_ids(embedder: Engine) -> None:
    ids = embedder.encode("Hello")
    both = embedder.embed(["Hello", ids])
    np.testing.assert_allclose(both[0], both[1], atol=1e-5)  # in one step or in two, as it comes
    assert embedder.embed([]).shape == (0, both.shape[1])
    done = embedder.submit_text("Hello").result(60)
    np.testing.assert_allclose(done.vector, both[0], atol=1e-5)
    assert (done.text, done.tokens, done.finish_reason, done.stats.prompt_tokens) == ("", [], "stop", len(ids))


def test_bad_input(embedder: Engine, where: str | None) -> None:
    for texts, says in [
        ("Hello", "embed takes a list of texts"),
        ([""], "the prompt is empty"),
        (["x" * 49], "the prompt has 49 tokens; the context holds 48"),
        ([[131]], "token id 131 is outside the vocabulary of 131"),
        ([[{"role": "user", "content": "x"}]], "messages have no vector"),
    ]:
        with pytest.raises(InputError, match=says):
            embedder.embed(texts)
    with pytest.raises(InputError, match=r"qwen3.gguf gives embeddings, not answers; use embed"):
        embedder.submit("Hello")
    assert embedder.embed(["still there"]).shape[0] == 1
    with pytest.raises(InputError, match="pooling must be one of auto, mean, cls, last, rank, not 'first'"):
        open_embedder(where, pooling="first")
    with pytest.raises(InputError, match="a draft model guesses tokens"):
        open_embedder(where, draft=MODELS / "qwen3.gguf")
    refused = pytest.raises(InputError, match="gives answers; for embeddings, open it with pooling")
    with Engine(MODELS / "qwen3.gguf", device=where, context=48) as engine, refused:
        engine.embed([[1]])
    with pytest.raises(UnsupportedError, match=r"llama_gqa.pte is not a GGUF model; only those give embeddings"):
        Engine(MODELS.parent / "conformance" / "llama_gqa.pte", device=where, pooling="last")


def test_a_lost_device(where: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of rows begin anew when all is read again."""
    tokens, _ = golden("qwen3")
    with open_embedder(where, pooling="mean") as engine:
        wanted = engine.embed([tokens, tokens[:30]])
        collect, left = engine.decoder.collect, [2]

        def losing(ticket: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                engine.decoder.abandon()
                raise DeviceLostError("the device was lost")
            return collect(ticket)

        monkeypatch.setattr(engine.decoder, "collect", losing)
        monkeypatch.setattr(engine.decoder, "recover", lambda: None)
        with pytest.warns(UserWarning, match="was lost"):
            again = engine.embed([tokens, tokens[:30]])
    assert left[0] <= 0 and np.abs(again - wanted).max() < (ON_CPU if where else ON_GPU)


def test_vectors_that_are_no_numbers(where: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_embedder(where) as engine:
        collect = engine.decoder.collect

        def spoiled(ticket: Any) -> Any:
            step = collect(ticket)
            step.ids[:] = -1
            return step

        monkeypatch.setattr(engine.decoder, "collect", spoiled)
        with pytest.raises(HightideError, match="not numbers"):
            engine.embed([[1, 2, 3]])


@pytest.mark.slow
@pytest.mark.gpu
def test_a_real_model_tells_texts_apart(device: object) -> None:
    """By an average of its rows, texts about the same thing are nearer to each other than to others."""
    texts = [
        "The cat sleeps on the warm sofa.",
        "A kitten is napping on the couch.",
        "Interest rates rose as the central bank fought inflation.",
        "The bank raised its rates because prices went up.",
    ]
    with Engine("default", pooling="mean", context=128) as engine:
        vectors = engine.embed(texts)
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > max(cosines[0, 2], cosines[0, 3])
    assert cosines[2, 3] > max(cosines[2, 0], cosines[2, 1])


def test_answers_are_as_before(where: str | None) -> None:
    """An LLM gives answers, whatever its file says of pooling."""
    with LLM(MODELS / "qwen3.gguf", device=where, context=48) as llm:
        assert len(llm.generate([5, 6, 7], max_tokens=4, ignore_eos=True).tokens) == 4
