"""Encoders against transformers: the vectors of all rows, of texts of unequal lengths in one step.

make_encoders.py made the files, and the goldens from their dequantised weights, each text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import error_of_range

from hightide import LLM, Embedder
from hightide.errors import DeviceLostError, HightideError, InputError, ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile, read_gguf
from hightide.gpu.device import Device
from hightide.llm.models import ENCODERS, build_encoder
from hightide.llm.models.encoder_builder import ENCODER_INPUTS
from hightide.ops.pages.work_lists import TILE
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

HERE = Path(__file__).parent / "encoders"
NAMES = sorted(path.stem for path in HERE.glob("*.gguf"))
CONTEXT, ROWS, PAIR = 64, 96, 12
ON_CPU, ON_GPU = 1e-5, 1e-4  # of the range
TEXTS = ["the cat sat", "a dog", "the mat ran far on the mat", "x", "the cat"]


def model(name: str) -> GgufFile:
    return read_gguf(HERE / f"{name}.gguf")


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(HERE / f"{name}.npz") as arrays:
        return dict(arrays)


def texts_of(arrays: dict[str, np.ndarray]) -> list[list[int]]:
    ends = np.cumsum(arrays["lengths"])
    return [part.tolist() for part in np.split(arrays["tokens"], ends[:-1])]


def rows_of(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    return np.split(arrays["rows"], np.cumsum(arrays["lengths"])[:-1])


def run(session: Any, texts: Sequence[Sequence[int]], types: Sequence[int] | None = None) -> np.ndarray:
    """The vectors of all rows of these texts, end to end."""
    tokens, positions, tiles = [], [], []
    for text in texts:
        start = len(tokens)
        tokens += text
        positions += range(len(text))
        tiles += [(start + n, min(TILE, len(text) - n), start, len(text)) for n in range(0, len(text), TILE)]
    given = {
        "tokens": [tokens],
        "positions": positions,
        "tiles": tiles,
        "wanted": range(len(tokens)),
        "types": types or [0] * len(tokens),
    }
    return session.run([np.array(given[spec.name], np.int32) for spec in session.specs])[0][0]


def session_of(file: GgufFile, device: Device | None = None) -> Any:
    graph = build_encoder(file, CONTEXT, ROWS, 8)
    names = ENCODER_INPUTS[: len(graph.inputs)]
    dynamic = [True] * len(names)
    return GpuSession(graph, device, dynamic, names) if device else CpuSession(graph, dynamic, names, dtype="float64")


def changed(file: GgufFile, **fields: Any) -> GgufFile:
    new = {f"{file.architecture}.{key.replace('__', '.')}": value for key, value in fields.items()}
    return replace(file, metadata={k: v for k, v in (file.metadata | new).items() if v is not None})


def test_every_encoder_has_a_model() -> None:
    assert {model(name).architecture for name in NAMES} == set(ENCODERS)


@pytest.mark.parametrize("name", NAMES)
def test_rows_agree_with_transformers_in_float64(name: str) -> None:
    arrays = golden(name)
    texts, session = texts_of(arrays), session_of(model(name))
    assert error_of_range(run(session, texts), arrays["rows"]) <= ON_CPU
    backwards = np.concatenate(rows_of(arrays)[::-1])
    assert error_of_range(run(session, texts[::-1]), backwards) <= ON_CPU


@pytest.mark.parametrize("name", NAMES)
def test_rows_agree_with_transformers_on_the_gpu(name: str, device: Device) -> None:
    arrays = golden(name)
    texts, session = texts_of(arrays), session_of(model(name), device)
    for some in ([0, 1, 2, 3], [2], [3, 1], [0]):
        expected = np.concatenate([rows_of(arrays)[n] for n in some])
        session.poison()
        assert error_of_range(run(session, [texts[n] for n in some]), expected) <= ON_GPU


def test_the_texts_of_a_pair_are_told_apart() -> None:
    arrays = golden("bert")
    text = texts_of(arrays)[0]
    types = [int(n >= PAIR) for n in range(len(text))]
    assert error_of_range(run(session_of(model("bert")), [text], types), arrays["pair_rows"]) <= ON_CPU
    assert error_of_range(arrays["pair_rows"], rows_of(arrays)[0]) > 100 * ON_GPU


MATTERS: list[tuple[str, dict[str, Any]]] = [
    ("bert", {"attention__layer_norm_epsilon": 0.1}),
    ("nomic", {"rope__freq_base": 10_000.0}),
    ("modern", {"attention__sliding_window": 20}),
    ("modern", {"attention__sliding_window_pattern": 2}),
    ("modern", {"attention__sliding_window_pattern": [True, True, True, True]}),
    ("modern", {"rope__freq_base": 10_000.0}),
    ("modern", {"rope__freq_base_swa": None}),
    ("modern", {"hidden_activation": "silu"}),
]


@pytest.mark.parametrize("name, fields", MATTERS)
def test_the_goldens_depend_on_what_they_check(name: str, fields: dict[str, Any]) -> None:
    arrays = golden(name)
    got = run(session_of(changed(model(name), **fields)), texts_of(arrays))
    assert error_of_range(got, arrays["rows"]) > 100 * ON_GPU


@pytest.mark.parametrize(
    "name, fields, error, says",
    [
        ("modern", {"hidden_activation": "relu"}, UnsupportedError, "activation 'relu'"),
        ("modern", {"attention__sliding_window_pattern": 0}, ProgramError, "which layers see everything"),
        ("bert", {"attention__layer_norm_epsilon": None}, ProgramError, "layer_norm_epsilon is missing"),
        ("bert", {"attention__head_count": 3}, ProgramError, "do not fit together"),
    ],
)
def test_fields_that_make_no_sense(name: str, fields: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        session_of(changed(model(name), **fields))


def test_a_tensor_that_nobody_reads() -> None:
    file = model("bert")
    more = {**file.tensors, "blk.0.attn_k_norm.weight": file.tensors["token_embd_norm.weight"]}
    with pytest.raises(UnsupportedError, match=r"has tensor blk.0.attn_k_norm.weight, which a bert model here"):
        session_of(replace(file, tensors=more))


# ---- vectors and scores


def opened(name: str, where: str | None = "cpu", **options: Any) -> Embedder:
    return Embedder(HERE / f"{name}.gguf", device=where, **({"max_texts": 3, "chunk": 16} | options))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize(
    "name, pooling, said",
    [
        ("bert", "auto", "mean"),
        ("bert_cls", "auto", "cls"),
        ("bert", "last", "last"),
        ("nomic", "auto", "mean"),
        ("modern", "auto", "cls"),
        ("modern", "mean", "mean"),
    ],
)
def test_vectors_are_pooled_rows(name: str, pooling: str, said: str) -> None:
    """More texts than a step has, some of them longer than its `chunk`."""
    arrays = golden(name)
    texts, rows = texts_of(arrays), rows_of(arrays)
    pool = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "last": lambda x: x[-1]}[said]
    expected = np.array([pool(each) for each in rows])
    with opened(name, pooling=pooling) as embedder:
        assert embedder.pooling == said
        got = embedder.embed(texts * 3)
        raw = embedder.embed(texts, normalize=False)
    assert got.dtype == np.float32 and got.shape == (12, 32)
    assert np.abs(got - np.tile(unit(expected), (3, 1))).max() <= 1e-5
    assert error_of_range(raw, expected) <= ON_CPU


@pytest.mark.gpu
def test_vectors_on_the_gpu(device: object) -> None:
    arrays = golden("bert")
    expected = unit(np.array([each.mean(0) for each in rows_of(arrays)]))
    with opened("bert", None) as embedder:
        assert np.abs(embedder.embed(texts_of(arrays)) - expected).max() <= 1e-4


@pytest.mark.parametrize("name", ["roberta_rank", "modern_rank"])
def test_scores_of_classifiers(name: str) -> None:
    """The ids of the goldens are given as they are: they stand for pairs."""
    arrays = golden(name)
    with opened(name) as embedder:
        assert embedder.pooling == "rank"
        engine = embedder.engine
        got = [engine.submit_text(text).result(60).vector for text in texts_of(arrays)]
        assert error_of_range(np.concatenate(got), arrays["scores"]) <= ON_CPU
        with pytest.raises(InputError, match="ranks documents, and gives no vectors; use rank"):
            embedder.embed(["the cat"])


def test_ranking_reads_query_and_document_together() -> None:
    with opened("roberta_rank") as embedder:
        scores = embedder.rank("the cat", TEXTS)
        pair = embedder.tokenizer.encode_pair("the cat", TEXTS[0])
        alone = embedder.engine.submit_text(pair).result(60).vector
    assert scores.shape == (5,) and len(set(scores.tolist())) == 5
    assert scores[0] == pytest.approx(float(alone[0]), abs=1e-5)


def test_ranking_by_cosines() -> None:
    with opened("bert") as embedder:
        scores = embedder.rank("the cat", TEXTS)
        vectors = embedder.embed(["the cat", *TEXTS])
    np.testing.assert_allclose(scores, vectors[1:] @ vectors[0], atol=1e-5)
    assert scores[4] == pytest.approx(1, abs=1e-5) and scores[:4].max() < 0.999


def test_long_texts() -> None:
    """Refused, or cut so that the token that closes the text stays."""
    long = "a " * 100
    with opened("bert") as embedder:
        with pytest.raises(InputError, match="the prompt has 102 tokens; the context holds 64"):
            embedder.embed([long])
        ids = embedder.tokenizer.encode_whole(long)
        cut = embedder.embed([long, [*ids[:63], ids[-1]]], truncate=True)
        np.testing.assert_allclose(cut[0], cut[1], atol=1e-6)
        assert embedder.rank("the cat", [long], truncate=True).shape == (1,)
        assert embedder.embed([]).shape == (0, 32)
        assert embedder.embed(["the cat"]).shape == (1, 32)


def test_pairs_have_types() -> None:
    """BERT's scores depend on which text a token is of: ids with a separator between are a pair."""
    arrays = golden("bert")
    text = texts_of(arrays)[0]
    with opened("bert") as embedder:
        (separator,) = embedder.tokenizer.between
        ids = [separator if n == PAIR - 1 else token for n, token in enumerate(text)]
        got = embedder.embed([ids], normalize=False)[0]
    types = [int(n >= PAIR) for n in range(len(ids))]
    rows = run(session_of(model("bert")), [ids], types)
    assert error_of_range(got, rows.mean(0)) <= ON_CPU


def test_vectors_do_not_depend_on_what_else_is_asked() -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, 131, rng.integers(1, 64)).tolist() for _ in range(30)]
    with opened("nomic", max_texts=8, chunk=64) as embedder:
        together = embedder.embed(texts)
        alone = np.concatenate([embedder.embed([text]) for text in texts])
        stats = embedder.engine.stats()
    assert np.abs(together - alone).max() <= 2e-6
    assert (stats.pages_used, stats.running, stats.waiting) == (0, 0, 0)


def test_encoders_give_no_answers() -> None:
    with pytest.raises(UnsupportedError, match=r"gives embeddings, not answers: open it with hightide.Embedder"):
        LLM(HERE / "bert.gguf", device="cpu")
    with pytest.raises(UnsupportedError, match="has no head that ranks"):
        opened("bert", pooling="rank")
    with pytest.raises(UnsupportedError, match="is a decoder, which cannot pool by 'cls'"):
        Embedder(HERE.parent / "qwen3.gguf", device="cpu", pooling="cls")


def test_a_pooling_that_nobody_knows(tmp_path: Path) -> None:
    file = (HERE / "bert.gguf").read_bytes()
    name = b"bert.pooling_type"
    at = file.index(name) + len(name) + 4  # behind the type of the value
    (tmp_path / "odd.gguf").write_bytes(file[:at] + b"\x09\0\0\0" + file[at + 4 :])
    with pytest.raises(UnsupportedError, match=r"pools its rows in the way 9; mean \(1\), cls \(2\), last"):
        Embedder(tmp_path / "odd.gguf", device="cpu")


def test_a_decoder_gives_its_last_row_by_default() -> None:
    with Embedder(HERE.parent / "qwen3.gguf", device="cpu", context=48) as embedder:
        assert embedder.pooling == "last" and embedder.embed([[1, 2, 3]]).shape == (1, 64)
        assert repr(embedder).startswith("<Embedder qwen3.gguf on NumPy")
    with pytest.raises(HightideError, match="closed"):
        embedder.embed([[1]])


def test_a_lost_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a step that was lost are read again."""
    arrays = golden("bert")
    with opened("bert") as embedder:
        expected = embedder.embed(texts_of(arrays))
        decoder, left = embedder.engine.decoder, [2]
        collect = decoder.collect

        def losing(ticket: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise DeviceLostError("the device was lost")
            return collect(ticket)

        monkeypatch.setattr(decoder, "collect", losing)
        with pytest.warns(UserWarning, match="the device was lost"):
            got = embedder.embed(texts_of(arrays) * 2)
    np.testing.assert_allclose(got, np.tile(expected, (2, 1)), atol=1e-6)
    assert left[0] < 0
