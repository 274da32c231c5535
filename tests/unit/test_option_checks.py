"""Options of the wrong type or range: one sentence, before a model or a program is opened."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hightide
from hightide.errors import HightideError, InputError
from hightide.executorch import Runtime
from hightide.llm import default_model
from hightide.llm.options import GenerationOptions
from hightide.llm.perplexity import perplexity

TESTS = Path(__file__).parents[1]
MODEL, PROGRAM = TESTS / "models" / "llama.gguf", TESTS / "conformance" / "llama_gqa.pte"
NAN, INF = math.nan, math.inf

OPENING = [
    ("context", 1.5), ("context", 0), ("context", "8"), ("context", True), ("chunk", 1.5), ("chunk", 0),
    ("chunk", "8"), ("device", 1.5), ("device", -1), ("device", True), ("device", ""), ("device", b"cpu"),
    ("kv", "f8"), ("kv", 16), ("kv", []), ("routes", 3), ("routes", "linear.gemv=split"), ("routes", {"a": "b"}),
    ("routes", {1: 2}), ("routes", {"linear.gemv": []}), ("progress", 3), ("tokenizer", 3), ("tokenizer", "a\0b"),
    ("tokenizer", b"a"),
]  # fmt: skip
ANSWERING = [
    ("seed", -1), ("seed", "x"), ("seed", 1.0), ("seed", True), ("max_tokens", "3"), ("max_tokens", 2.5),
    ("max_tokens", -1), ("max_tokens", True), ("stop_ids", 3), ("stop_ids", "3"), ("stop_ids", ["3"]),
    ("stop_ids", [-1]), ("stop_ids", [True]), ("stop", "a"), ("stop", 3), ("stop", [""]), ("stop", [3]),
    ("stop", b"a"), ("on_full", "x"), ("on_full", 1), ("on_full", []), ("speculate", "no"), ("speculate", 1),
    ("progress", 1), ("sampling", {}), ("temperature", NAN), ("temperature", -1), ("temperature", "1"),
    ("temperature", True), ("temperature", INF), ("temperature", None), ("top_k", -1), ("top_k", 2.5), ("top_k", True),
    ("top_p", 0), ("top_p", 1.1), ("min_p", -0.1), ("min_p", 2), ("repetition_penalty", 0), ("ignore_eos", 1),
    ("repetition_penalty", -1), ("presence_penalty", NAN), ("frequency_penalty", "a"), ("frequency_penalty", INF),
    ("logprobs", -1), ("logprobs", 1.5), ("logprobs", True), ("logit_bias", {1: "a"}), ("logit_bias", {"1": 1}),
    ("logit_bias", {-1: 1}), ("logit_bias", {1: NAN}), ("logit_bias", {1: INF}), ("logit_bias", {True: 1}),
    ("logit_bias", [1]), ("logit_bias", {1: None}), ("nothing", 1),
]  # fmt: skip


def sentence(raised: Any) -> str:
    text = str(raised.value)
    assert "\n" not in text and len(text) < 300
    return text


@pytest.mark.parametrize(("name", "value"), OPENING, ids=str)
def test_a_model_is_not_opened(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.llm.model.is_model", None)  # who gets there fails
    with pytest.raises(InputError) as raised:
        hightide.LLM(MODEL, **{name: value})
    sentence(raised)


@pytest.mark.parametrize("path", [3, None, b"a.gguf", "a\0b", ["a.gguf"]])
def test_paths(path: Any) -> None:
    for load in (hightide.LLM, hightide.load):
        with pytest.raises(InputError, match="must be the path of a file") as raised:
            load(path)  # type: ignore[operator]
        sentence(raised)


@pytest.mark.parametrize(
    ("name", "value"),
    [case for case in OPENING if case[0] in ("device", "routes")] + [("data", 3), ("data", [3]), ("data", "a\0")],
    ids=str,
)
def test_a_program_is_not_loaded(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.pte.program.read_program", None)
    with pytest.raises(InputError) as raised:
        hightide.load(PROGRAM, **{name: value})
    sentence(raised)


@pytest.mark.parametrize(("name", "value"), ANSWERING, ids=str)
def test_an_answer_is_not_begun(name: str, value: Any) -> None:
    with pytest.raises(InputError) as raised:
        GenerationOptions().changed({name: value})
    assert name.partition("_")[0] in sentence(raised)


def test_options_that_are_fine() -> None:
    options = GenerationOptions().changed(
        dict(max_tokens=np.int64(3), seed=np.uint32(4), stop=("a",), stop_ids={1, 2}, temperature=1, top_k=np.int32(3))
    )
    assert options.changed({"logit_bias": {np.int64(3): -INF, 4: np.float32(1)}, "presence_penalty": -1}).seed == 4


@pytest.mark.parametrize("prompt", [b"abc", bytearray(b"abc"), [True, False], [1, 2.5], np.ones(3), 7, None, [[1]]])
def test_prompts(prompt: Any) -> None:
    with hightide.LLM(MODEL, device="CPU") as model, pytest.raises(InputError, match="a prompt is text"):
        model.generate(prompt)


def test_other_calls_of_a_model() -> None:
    with hightide.LLM(MODEL, device=" Cpu ") as model:
        for call in (
            lambda: model.truncate("a"),  # type: ignore[arg-type]
            lambda: model.truncate(True),
            lambda: model.save_state(3),  # type: ignore[arg-type]
            lambda: model.load_state("a\0"),
            lambda: model.generate([1], {"max_tokens": 3}),  # type: ignore[arg-type]
            lambda: perplexity(model, [1, 2, 3], window="2"),  # type: ignore[arg-type]
            lambda: perplexity(model, [1, 2, 3], stride=1.5),  # type: ignore[arg-type]
        ):
            with pytest.raises(InputError) as raised:
                call()
            sentence(raised)


def test_the_default_model_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.llm.model.default_model", lambda: MODEL)
    with hightide.LLM("default", device="cpu") as model:
        assert model.path == MODEL
    assert default_model.DEFAULT == "default"


@pytest.mark.parametrize(
    "options", [["--seed", "-1"], ["--temperature", "nan"], ["--top-p", "2"], ["--device", ""], ["--min-p", "-1"]]
)
@pytest.mark.parametrize("command", ["generate", "chat"])
def test_commands_refuse_before_they_load(
    command: str, options: list[str], hightide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hightide.llm.model.is_model", None)
    code, out, err = hightide(command, MODEL, *(["hi"] if command == "generate" else []), *options)
    assert (code, out) == (1, "") and err.startswith("hightide: ") and err.count("\n") == 1


@pytest.mark.parametrize(("command", "code"), [("run", 1), ("verify", 2)])
def test_seeds_of_random_inputs(command: str, code: int, hightide: Any) -> None:
    assert hightide(command, PROGRAM, "--seed", "-1") == (code, "", "hightide: --seed must be at least 0, not -1\n")


def test_version(hightide: Any) -> None:
    code, out, err = hightide("--version")
    assert (code, err) == (0, "") and out.startswith("hightide ") and out.strip()[-1].isdigit()


# ---- as executorch.runtime


def test_errors_of_the_mirror(tmp_path: Path) -> None:
    runtime = Runtime.get()
    bad = tmp_path / "bad.pte"
    bad.write_bytes(b"not a program")
    for path in (tmp_path / "missing.pte", bad, tmp_path):
        with pytest.raises(RuntimeError) as raised:
            runtime.load_program(path)
        assert isinstance(raised.value, HightideError)
    with pytest.raises(RuntimeError):
        runtime.load_program(b"not a program")
    with pytest.raises(TypeError):
        runtime.load_program(3)  # type: ignore[arg-type]
    program = runtime.load_program(PROGRAM, device="cpu")
    with pytest.raises(KeyError):
        program.load_method("nothing")
    with pytest.raises(RuntimeError, match="has no method 'nothing'"):
        program.metadata("nothing")
    method = program.load_method("forward")
    for inputs in ([], [1, 2, 3], ["a", "b"], [object(), None], [np.zeros((1, 1)), np.zeros(1)]):
        with pytest.raises(RuntimeError):
            method.execute(inputs)
    with pytest.raises(RuntimeError, match="device must be"):
        runtime.load_program(PROGRAM, device=-1)
