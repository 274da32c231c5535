"""`/v1/embeddings` as clients see it: a real server with a small model, and the real `openai` client."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from embedding_models import with_pooling
from running_server import Running, running, wait_until
from scripted_models import letters_tokenizer

from hightide import Embedder, Engine

MODELS = Path(__file__).parents[1] / "models"
TEXTS = ["Hello", "Hello, world", "a", "something else altogether"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embeddings")
    with_pooling(MODELS / "qwen3.gguf", folder / "vectors.gguf", "qwen3", 3)
    letters_tokenizer(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    options = ("--tokenizer", folder / "tokenizer.json", "--device", "cpu", "--context", 48, "--max-sequences", 4)
    with running(folder, folder / "vectors.gguf", *options, "--max-waiting", 100) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return server.client()


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    with Engine(folder / "vectors.gguf", tokenizer=folder / "tokenizer.json", device="cpu", context=48) as engine:
        return engine.embed(TEXTS)


def vectors(reply: Any) -> np.ndarray:
    assert [one.index for one in reply.data] == list(range(len(reply.data)))
    return np.array([one.embedding for one in reply.data])


def test_the_client_gets_vectors(client: openai.OpenAI, expected: np.ndarray) -> None:
    """The client asks for base64 unless it is told otherwise."""
    reply = client.embeddings.create(model="vectors", input=TEXTS)
    np.testing.assert_allclose(vectors(reply), expected, atol=1e-5)
    assert (reply.object, reply.model) == ("list", "vectors")
    assert reply.usage.prompt_tokens == reply.usage.total_tokens == sum(map(len, TEXTS))
    numbers = client.embeddings.create(model="vectors", input=TEXTS[0], encoding_format="float")
    np.testing.assert_allclose(vectors(numbers), expected[:1], atol=1e-5)


def test_token_ids(server: Running, client: openai.OpenAI, expected: np.ndarray) -> None:
    ids = [server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in TEXTS]
    several, one = (client.embeddings.create(model="vectors", input=given) for given in (ids, ids[0]))
    np.testing.assert_allclose(vectors(several), expected, atol=1e-5)
    np.testing.assert_allclose(vectors(one), expected[:1], atol=1e-5)


def test_fewer_dimensions(client: openai.OpenAI, expected: np.ndarray) -> None:
    reply = client.embeddings.create(model="vectors", input=TEXTS, dimensions=8)
    part = expected[:, :8]
    np.testing.assert_allclose(vectors(reply), part / np.linalg.norm(part, axis=1, keepdims=True), atol=1e-5)


def test_more_texts_than_may_wait(client: openai.OpenAI, expected: np.ndarray) -> None:
    reply = client.embeddings.create(model="vectors", input=TEXTS * 100)
    np.testing.assert_allclose(vectors(reply), np.tile(expected, (100, 1)), atol=1e-5)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 400, "input must be a text, or an array of texts, none of them empty"),
        ({"input": ""}, 400, "input must be a text"),
        ({"input": []}, 400, "input must be a text"),
        ({"input": ["a", ""]}, 400, "input must be a text"),
        ({"input": 3}, 400, "input must be text or an array of token ids, not 3"),
        ({"input": [1, "a"]}, 400, "input must be text, or token ids below 131"),
        ({"input": [[1], [131]]}, 400, "input must be text, or token ids below 131"),
        ({"input": "a" * 49}, 400, "the prompt has 49 tokens; the context holds 48"),
        ({"input": ["a"] * 2049}, 400, "a request can have 2048 texts, not 2049"),
        ({"input": "a", "dimensions": 0}, 400, "dimensions must be an integer"),
        ({"input": "a", "dimensions": 100_000}, 400, "dimensions can be at most"),
        ({"input": "a", "encoding_format": "int8"}, 400, 'encoding_format must be "float" or "base64"'),
        ({"input": "a", "truncate": 1}, 400, "truncate must be true or false, not 1"),
        ({"input": "a", "prompt": "b"}, 400, "the parameter 'prompt' is not supported"),
        ({"input": "a", "model": "other"}, 404, "there is no model 'other' here"),
    ],
)
def test_bad_requests(server: Running, body: dict[str, Any], status: int, says: str) -> None:
    reply = server.post("/v1/embeddings", body)
    assert reply.status_code == status and says in reply.json()["error"]["message"], reply.text


def test_long_texts_are_cut_on_request(server: Running) -> None:
    texts = ["a" * 48, "a" * 60]
    reply = server.post("/v1/embeddings", {"input": texts, "truncate": True}).json()
    whole, cut = (np.array(one["embedding"]) for one in reply["data"])
    np.testing.assert_allclose(cut, whole, atol=1e-6)
    assert reply["usage"] == {"prompt_tokens": 96, "total_tokens": 96}


def test_documents_by_cosine(server: Running, expected: np.ndarray) -> None:
    body = {"query": TEXTS[0], "documents": TEXTS[1:]}
    reply = server.post("/v1/rerank", body).json()
    cosines = expected[1:] @ expected[0]
    order = np.argsort(-cosines)
    assert [one["index"] for one in reply["results"]] == order.tolist()
    np.testing.assert_allclose([one["relevance_score"] for one in reply["results"]], cosines[order], atol=1e-5)
    assert (reply["object"], reply["model"]) == ("list", "vectors")
    assert reply["usage"] == {"prompt_tokens": sum(map(len, TEXTS)), "total_tokens": sum(map(len, TEXTS))}
    best = server.post("/v1/rerank", body | {"top_n": 1, "return_documents": True}).json()["results"]
    assert [(one["index"], one["document"]) for one in best] == [(order[0], {"text": TEXTS[1:][order[0]]})]


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"query": ""}, 400, "query must be a text that is not empty"),
        ({"query": None}, 400, "query must be a text that is not empty"),
        ({"documents": []}, 400, "documents must be an array of 1 to 2048 texts"),
        ({"documents": "a"}, 400, "documents must be an array"),
        ({"documents": ["a", ""]}, 400, "documents[1] must be a text that is not empty"),
        ({"documents": [{"title": "a"}]}, 400, "documents[0] must be a text"),
        ({"documents": ["a" * 49]}, 400, "the prompt has 49 tokens; the context holds 48"),
        ({"top_n": 0}, 400, "top_n must be an integer"),
        ({"max_chunks": 3}, 400, "the parameter 'max_chunks' is not supported"),
    ],
)
def test_bad_requests_to_rank(server: Running, changes: dict[str, Any], status: int, says: str) -> None:
    reply = server.post("/v1/rerank", {"query": "a", "documents": ["b"]} | changes)
    assert reply.status_code == status and says in reply.json()["error"]["message"], reply.text


def test_a_cross_encoder(tmp_path: Path) -> None:
    """It scores a query and a document together, and gives no vectors."""
    model, documents = MODELS / "encoders" / "roberta_rank.gguf", ["the cat sat", {"text": "a dog"}, "the mat ran far"]
    with Embedder(model, device="cpu") as embedder:
        scores = embedder.rank("the cat", ["the cat sat", "a dog", "the mat ran far"])
        pairs = [
            embedder.tokenizer.encode_pair("the cat", text) for text in ("the cat sat", "a dog", "the mat ran far")
        ]
    with running(tmp_path, model, "--device", "cpu") as server:
        reply = server.post("/v1/rerank", {"query": "the cat", "documents": documents}).json()
        refused = server.post("/v1/embeddings", {"input": "the cat"})
    order = np.argsort(-scores)
    assert [one["index"] for one in reply["results"]] == order.tolist()
    np.testing.assert_allclose([one["relevance_score"] for one in reply["results"]], scores[order], atol=1e-5)
    assert reply["usage"]["prompt_tokens"] == sum(map(len, pairs))
    assert refused.status_code == 400 and "ranks documents; ask /v1/rerank" in refused.json()["error"]["message"]


def test_it_gives_no_answers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="the model vectors gives embeddings, not answers"):
        client.chat.completions.create(model="vectors", messages=[{"role": "user", "content": "Hello"}])
    with pytest.raises(openai.BadRequestError, match="not answers"):
        client.completions.create(model="vectors", prompt="Hello")
    with pytest.raises(openai.BadRequestError, match="not answers"):
        client.responses.create(model="vectors", input="Hello")


def test_a_worker_that_dies(server: Running, client: openai.OpenAI, expected: np.ndarray) -> None:
    (worker,) = server.workers()
    os.kill(worker, signal.SIGKILL)
    np.testing.assert_allclose(vectors(client.embeddings.create(model="vectors", input=TEXTS)), expected, atol=1e-5)
    wait_until(lambda: len(server.workers()) == 1)
