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

from hightide import Engine

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
        ({"input": "a", "truncate": True}, 400, "the parameter 'truncate' is not supported"),
        ({"input": "a", "model": "other"}, 404, "there is no model 'other' here"),
    ],
)
def test_bad_requests(server: Running, body: dict[str, Any], status: int, says: str) -> None:
    reply = server.post("/v1/embeddings", body)
    assert reply.status_code == status and says in reply.json()["error"]["message"], reply.text


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
