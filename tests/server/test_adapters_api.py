"""LoRA adapters of a server: requests name them as models, or say how much of which they want."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from hf_folders import VOCAB, folder_tensors, write_adapter, write_byte_level, write_folder
from running_server import Running, running

from hightide import LLM
from hightide.formats.gguf import read_gguf

LLAMA = Path(__file__).parents[1] / "models" / "llama.gguf"
PROMPT = "the one that is read by all of them, and is longer than a page of keys and values"
CHOICES: list[dict[str, float]] = [{}, {"style": 1.0}, {"facts": 1.0}, {"style": 0.5, "facts": -1.0}]
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def chatty(folder: Path) -> tuple[Path, dict[str, Path]]:
    """A small model with a tokenizer, and two adapters of it."""
    rng = np.random.default_rng(5)
    tensors = folder_tensors(read_gguf(LLAMA))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = rng.standard_normal((VOCAB, 64)).astype(np.float32)
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    model = write_folder(folder / "chatty", config, tensors)
    write_byte_level(model)
    sides = [(rng.standard_normal((4, 96)), rng.standard_normal((64, 4))) for _ in range(2)]
    adapters = {
        name: write_adapter(folder / name, {"model.layers.1.mlp.down_proj": pair}, lora_alpha=8)
        for name, pair in zip(("style", "facts"), sides, strict=True)
    }
    return model, adapters


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path], list[str]]:
    """The model, its adapters, and what it says with each of the choices merged into it."""
    model, adapters = chatty(tmp_path_factory.mktemp("adapters"))
    texts = []
    for choice in CHOICES:
        merge = {str(adapters[name]): weight for name, weight in choice.items()}
        with LLM(model, merge=merge, device="cpu", context=128) as llm:
            texts.append(llm.generate(PROMPT, max_tokens=6, ignore_eos=True).text)
    assert len(set(texts)) == len(texts)
    return model, adapters, texts


@pytest.fixture(scope="module")
def server(
    expected: tuple[Path, dict[str, Path], list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    model, adapters, _ = expected
    options = [option for name, path in adapters.items() for option in ("--lora", f"{name}={path}")]
    folder = tmp_path_factory.mktemp("server")
    with running(folder, model, "--device", "cpu", "--context", 128, *options) as server:
        yield server


def said(server: Running, **changes: Any) -> str:
    reply = server.post("/v1/completions", BODY | changes)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["text"])


@pytest.mark.slow
def test_adapters_are_listed_as_models(server: Running) -> None:
    listed = [(model.id, getattr(model, "parent", None)) for model in server.client().models.list()]
    assert listed == [("chatty", None), ("style", "chatty"), ("facts", "chatty")]
    assert server.get("/v1/models/facts").json()["parent"] == "chatty"
    with pytest.raises(openai.NotFoundError, match="there is no model 'other' here; there is chatty, style, facts"):
        server.client().completions.create(model="other", prompt="x")


@pytest.mark.slow
def test_a_request_names_an_adapter_as_its_model(
    server: Running, expected: tuple[Path, dict[str, Path], list[str]]
) -> None:
    plain, style, facts, both = expected[2]
    names = {"chatty": plain, "style": style, "facts": facts, None: plain}
    for name in ("style", "facts", "chatty", "style", None):  # each over the keys and values of another
        reply = server.post("/v1/completions", BODY | {"model": name}).json()
        assert (reply["choices"][0]["text"], reply["model"]) == (names[name], name or "chatty")
    assert said(server, model="style", adapters={"style": 0.5, "facts": -1}) == both
    assert said(server, model="style", adapters={"style": 0}) == plain
    again = server.post("/v1/completions", BODY | {"model": "style"}).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0  # what was read with the same adapter
    chat = {"model": "style", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "temperature": 0}
    assert server.post("/v1/chat/completions", chat).json()["model"] == "style"
    assert server.post("/v1/responses", {"model": "facts", "input": "x", "max_output_tokens": 4}).status_code == 200
    assert server.post("/tokenize", {"model": "style", "prompt": "x"}).status_code == 200


@pytest.mark.slow
def test_requests_of_many_adapters_are_answered_together(
    server: Running, expected: tuple[Path, dict[str, Path], list[str]]
) -> None:
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda n: said(server, adapters=CHOICES[n % len(CHOICES)]), range(16)))
    assert texts == expected[2] * 4


@pytest.mark.slow
def test_requests_say_how_much_of_which(server: Running, expected: tuple[Path, dict[str, Path], list[str]]) -> None:
    plain, style, facts, both = expected[2]
    assert said(server, adapters={"style": 1.0}) == style
    assert said(server, lora=[{"id": 1, "scale": 1}]) == facts
    assert said(server, lora=[{"id": 0, "scale": 0.5}, {"id": 1, "scale": -1}]) == both
    assert said(server, lora=[]) == said(server, lora=[{"id": 0}]) == plain
    wrong: list[dict[str, Any]] = [{"adapters": given} for given in ({"other": 1.0}, {"style": "much"}, 3)]
    wrong += [{"lora": given} for given in ([{"id": 2, "scale": 1}], [{"scale": 1}], [{"id": 0, "scale": "x"}], [3], 3)]
    for changes in (*wrong, {"lora": [], "adapters": {}}, {"lora": [{"id": 0, "by": 1}]}):
        refused = server.post("/v1/completions", BODY | changes)
        assert refused.status_code == 400, (changes, refused.text)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--adapter", "a=x", "--lora", "a=y"], "two adapters are called 'a'"),
        (["--adapter", "=x"], "--adapter must be NAME=PATH, not '=x'"),
        (["--name", "a", "--adapter", "a=x"], "the model and an adapter are both called 'a'"),
        (["--model", "a=x", "--model", "b=y", "--adapter", "c=z"], "--adapter is for a server of one model"),
    ],
)
def test_names_that_a_server_cannot_have(hightide: Any, options: list[str], message: str) -> None:
    model = [] if "--model" in options else [LLAMA]
    code, _, said = hightide("serve", *model, *options)
    assert code == 1 and message in said
