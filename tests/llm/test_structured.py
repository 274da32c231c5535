"""Answers that follow a grammar, and answers that go on behind tokens made elsewhere.

Every test runs on the NumPy references, and on the GPU where there is an adapter.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import small_vocabularies
from random_schemas import random_schema

from hightide import LLM, Engine, Grammar
from hightide.errors import HightideError, InputError
from hightide.gpu.device import adapters
from hightide.llm.answer import Completion
from hightide.llm.batch import GREEDY, Batch, Rows
from hightide.llm.batcher import Batcher
from hightide.llm.constraint import token_bits
from hightide.llm.decoder import RaggedDecoder
from hightide.llm.generation import Generation
from hightide.llm.model import Placement, open_model
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence
from hightide.llm.text_stream import TextStream
from hightide.runtime.gpu_session import GpuSession

TESTS = Path(__file__).parents[1]
LLAMA = TESTS / "models" / "llama.gguf"
PROGRAM = TESTS / "conformance" / "qwen3.pte"
VOCAB, END = 131, 130  # of the GGUF model
PROMPT = [3, 14, 15, 92, 65]
PERSON = {
    "type": "object",
    "properties": {"abc": {"type": "string", "maxLength": 6}, "true": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["abc", "true"],
    "additionalProperties": False,
}
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 30, "top_p": 0.95, "min_p": 0.01},
    {"speculate": True, "temperature": 0.9},
    {"logprobs": 2, "temperature": 1.0},
    {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "temperature": 1.0},
]


def open_engine(where: str | None, model: Path = LLAMA, **options: Any) -> Engine:
    gguf = {"context": 256, "chunk": 16} if model.suffix == ".gguf" else {}
    tokenizer = small_vocabularies.byte_level(VOCAB if gguf else 160)
    given = {"tokenizer": tokenizer, "max_sequences": 4, **gguf, **options}
    return Engine(model, device=where, **given)


@cache
def person() -> Grammar:
    return Grammar.json_schema(PERSON)


@cache
def schemas(count: int, seed: int) -> list[tuple[dict[str, Any], Grammar]]:
    rng = np.random.default_rng(seed)
    made = [random_schema(rng) for _ in range(count)]
    return [(schema, Grammar.json_schema(schema)) for schema in made]


def check(answer: Completion, schema: dict[str, Any]) -> None:
    """A complete answer is valid JSON by the schema."""
    if answer.finish_reason == "stop":
        checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        checker.validate(json.loads(answer.text))


# ---- valid answers


def answer_schemas(engine: Engine, known: list[tuple[dict[str, Any], Grammar]], most: int, check_free: bool) -> Counter:
    """All of them at once, in every way, with others among them that follow no grammar."""
    asked: list[tuple[Any, dict[str, Any] | None]] = []
    for n, (schema, grammar) in enumerate(known):
        way = {"seed": n, "max_tokens": most, **WAYS[n % len(WAYS)]}
        asked.append((engine.submit([*PROMPT, n % 128], grammar=grammar, n=1 + n % 3 // 2, **way), schema))
        if n % 4 == 0:
            asked.append((engine.submit([n % 128, *PROMPT], max_tokens=10, ignore_eos=True), None))
    reasons: Counter[str] = Counter()
    free = []
    for request, schema in asked:
        for answer in request.results(600):
            if schema is None:
                free.append(answer.tokens)
            else:
                check(answer, schema)
                reasons[answer.finish_reason] += 1
    if check_free:
        prompts = [[n % 128, *PROMPT] for n in range(0, len(known), 4)]
        assert free == [engine.submit(p, max_tokens=10, ignore_eos=True).result().tokens for p in prompts]
    return reasons


@pytest.mark.parametrize("model", [LLAMA, PROGRAM], ids=lambda path: path.name)
def test_answers_are_valid(model: Path, where: str | None) -> None:
    with open_engine(where, model, max_sequences=6) as engine:
        reasons = answer_schemas(engine, schemas(18, 1), min(engine.context - 8, 200), check_free=True)
        assert reasons["stop"] >= 16 and set(reasons) <= {"stop", "length", "context"}
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["byte_level", "sentencepiece"])
def test_random_schemas(vocabulary: str, where: str | None) -> None:
    count = 500 if where is None and vocabulary == "byte_level" else 150
    tokenizer = getattr(small_vocabularies, vocabulary)(VOCAB)
    with open_engine(where, tokenizer=tokenizer, max_sequences=8) as engine:
        reasons = answer_schemas(engine, schemas(count, 2), 240, check_free=False)
        assert reasons["stop"] >= 1.2 * count and set(reasons) <= {"stop", "length", "context"}


@pytest.mark.parametrize("name", ["llama_nokv.pte", "llama_int8.pte"])
@pytest.mark.filterwarnings("ignore:.* (serves its sequences in turns|runs outside its delegates)")
def test_programs_that_take_turns(name: str, where: str | None) -> None:
    with open_engine(where, TESTS / "conformance" / name, max_sequences=2) as engine:
        grammar, options = Grammar.regex("[ab]{3}-[0-9]{2,4}"), {"temperature": 1.0, "max_tokens": 16}
        answers = [engine.submit(PROMPT, grammar=grammar, seed=n, **options) for n in range(3)]
        for answer in answers:
            text = answer.result(60).text
            assert text[3] == "-" and set(text[:3]) <= set("ab") and text[4:].isdigit() and 6 <= len(text) <= 8


def test_a_model_alone(where: str | None) -> None:
    with LLM(LLAMA, device=where, tokenizer=small_vocabularies.sentencepiece(VOCAB), context=128) as llm:
        answer = llm.generate(PROMPT, grammar=person(), max_tokens=60, temperature=1.0, seed=3)
        assert answer.finish_reason == "stop"
        check(answer, PERSON)
        assert answer.stats.calls + 1 < answer.stats.new_tokens == len(answer.tokens)
        assert llm.generate(PROMPT, grammar=Grammar.json_object(), max_tokens=3).finish_reason == "length"


# ---- the same answer in every way


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "sampled"])
def test_an_answer_is_the_same_in_every_way(options: dict[str, Any], where: str | None) -> None:
    options = {"grammar": person(), "max_tokens": 40, **options}
    with open_engine(where) as engine:
        whole = engine.submit(PROMPT, **options).result()
        assert whole.finish_reason == "stop"
        others = [engine.submit([n, *PROMPT], max_tokens=30, temperature=1.0, ignore_eos=True) for n in range(3)]
        together = [engine.submit(PROMPT, **options) for _ in range(3)]
        ways = [{"speculate": True}, {"logprobs": 1}, {"logit_bias": {5: 0.0}}]
        together += [engine.submit(PROMPT, **options, **way) for way in ways]
        assert [request.result(60).tokens for request in together] == [whole.tokens] * 6
        assert [len(request.result(60).tokens) for request in others] == [30] * 3
    with open_engine(where, kv_memory=16 * 1024 * 5, max_sequences=8) as engine:
        crowd = [engine.submit([n] * 12, max_tokens=30, ignore_eos=True) for n in range(5)]
        assert engine.submit(PROMPT, **options).result(60).tokens == whole.tokens
        assert [request.result(60).finish_reason for request in crowd] == ["length"] * 5
        assert engine.stats().set_aside
    with open_engine(where, reproducible=True) as engine:
        alone = engine.submit(PROMPT, **options).result().tokens
        crowd = [engine.submit([n] * 12, max_tokens=30) for n in range(3)]
        assert engine.submit(PROMPT, **options).result(60).tokens == alone


@pytest.mark.parametrize("draft", ["llama.gguf", "llama_tied.gguf"])
def test_a_draft_model_changes_nothing(draft: str, where: str | None) -> None:
    grammar = Grammar.regex("[a-z0-9]{20}x*")
    prompts = [PROMPT, [9, 8], [7] * 20]
    for options in ({"max_tokens": 30}, {"max_tokens": 30, "temperature": 0.8, "seed": 2}):
        with open_engine(where) as engine:
            wanted = [answer.tokens for answer in engine.generate(prompts, grammar=grammar, **options)]
        with open_engine(where, draft=TESTS / "models" / draft) as engine:
            assert [answer.tokens for answer in engine.generate(prompts, grammar=grammar, **options)] == wanted


def test_speculation_checks_drafts_against_the_grammar(where: str | None) -> None:
    """Text that repeats itself is guessed; fewer steps than tokens, the same tokens."""
    with open_engine(where) as engine:
        options = {"grammar": Grammar.regex("(ab[01]){12}"), "max_tokens": 60}
        plain = engine.submit(PROMPT, **options).result()
        guessed = engine.submit(PROMPT, speculate=True, **options).result()
        assert guessed.tokens == plain.tokens and guessed.stats.calls <= plain.stats.calls


def test_forced_tokens_behind_a_draft_that_fills_a_page(where: str | None) -> None:
    """With one of these prompts, a page ends where tokens are forced."""
    grammar = Grammar.regex("[xy]{24}-12-12[xy]")
    with open_engine(where) as engine:
        for length in range(7, 12):
            plain = engine.submit([5] * length, grammar=grammar).result(60)
            guessed = engine.submit([5] * length, grammar=grammar, speculate=True).result(60)
            assert guessed.tokens == plain.tokens and guessed.finish_reason == "stop"
            assert guessed.stats.calls < plain.stats.calls


def test_samples_follow_the_grammar_each_by_itself(where: str | None) -> None:
    prompt = [7, 9, 11] * 10
    with open_engine(where) as engine:
        options = {"grammar": person(), "max_tokens": 40, "temperature": 1.0}
        alone = [engine.submit(prompt, seed=3 + n, **options).result().tokens for n in range(4)]
    with open_engine(where) as engine:
        answers = engine.submit(prompt, n=4, seed=3, **options).results()
        assert [answer.tokens for answer in answers] == alone and len({tuple(tokens) for tokens in alone}) == 4
        assert engine.stats().rows <= len(prompt) + 3 + sum(map(len, alone))
        for answer in answers:
            check(answer, PERSON)


# ---- where an answer ends


def test_where_an_answer_ends(where: str | None) -> None:
    with open_engine(where) as engine:

        def ask(grammar: Grammar, **options: Any) -> Completion:
            return engine.submit(PROMPT, grammar=grammar, **options).result(60)

        steps = engine.stats().steps
        forced = ask(Grammar.choice(["true"]))
        assert (forced.text, forced.finish_reason, engine.stats().steps) == ("true", "stop", steps)
        assert ask(Grammar.regex("")).tokens == [] and ask(Grammar.regex("")).finish_reason == "stop"
        assert ask(Grammar.choice(["true"]), max_tokens=0).finish_reason == "length"
        short = ask(person(), max_tokens=4)
        assert short.finish_reason == "length" and len(short.tokens) == 4
        stopped = ask(person(), stop=['":'])
        assert (stopped.text, stopped.finish_reason) == ('{"abc', "stop")
        # The end token is allowed where the text may end, and nowhere else.
        bias = {"logit_bias": {END: 100.0}}
        assert ask(Grammar.regex("[ab]{2,}"), **bias).finish_reason == "stop"
        assert len(ask(Grammar.regex("[ab]{2,}"), **bias).text) == 2
        assert ask(Grammar.regex("[ab]{2,9}"), ignore_eos=True, **bias, max_tokens=9).text.strip("ab") == ""
        assert len(ask(Grammar.regex("[ab]{2,}"), ignore_eos=True, **bias, max_tokens=9).tokens) == 9
        assert ask(Grammar.regex("x{2}[ab]*"), stop_ids=[END], ignore_eos=True, **bias).text == "xx"
        full = ask(Grammar.regex("[0-9]*"), ignore_eos=True)
        assert full.finish_reason == "context" and full.text.isdigit()
        shifted = ask(Grammar.regex("([0-9]{3}-)*"), ignore_eos=True, on_full="shift", max_tokens=400)
        assert shifted.finish_reason == "length" and len(shifted.tokens) == 400
        assert all(len(part) == 3 for part in shifted.text.split("-")[:-1])


def test_logprobs_are_of_what_is_allowed(where: str | None) -> None:
    with open_engine(where) as engine:
        answer = engine.submit(PROMPT, grammar=Grammar.regex("[abc][0-1]x"), logprobs=5).result()
        first, second, last = answer.pieces
        assert len(first.alternatives) == 3 and len(second.alternatives) == 2
        for piece in (first, second):
            assert sum(np.exp(logprob) for _, logprob in piece.alternatives) == pytest.approx(1)
            assert piece.logprob == piece.alternatives[0][1]
        assert (last.logprob, last.alternatives) == (0.0, ((last.token, 0.0),))


# ---- what a mask costs


@pytest.mark.gpu
def test_a_step_writes_the_masks_of_its_constrained_rows_only() -> None:
    if not adapters():
        pytest.skip("no WebGPU adapter")
    model = open_model(LLAMA, small_vocabularies.byte_level(VOCAB), 64, 16, Placement(None, sequences=4))
    assert isinstance(model.decoder, RaggedDecoder) and isinstance(model.decoder.session, GpuSession)
    session, batcher = model.decoder.session, Batcher(model.decoder, 4)
    free, limited = (
        GenerationOptions(max_tokens=40),
        GenerationOptions(grammar=Grammar.regex("[0-9]*"), ignore_eos=True),
    )
    for n, options in enumerate((free, free, limited)):
        batcher.add(model.generation(PagedSequence(batcher.pool), [3 + n, 5], options))
    for _ in range(6):
        batcher.step()
    most = 0
    for _ in range(8):
        before = replace(session.counters)
        batcher.step()
        assert session.counters.read_bytes - before.read_bytes <= 4 * 3
        most = max(most, session.counters.input_bytes - before.input_bytes)
    # Of each row: token, position, place, wanted, mask number, settings and tile. One mask of 131 bits.
    assert most <= 3 * (4 * 5 + 20 + 16) + 4 + 4 * 16 + 4 * 5
    batcher.abandon()
    model.decoder.close()


# ---- what goes wrong


class Nothing:
    """A constraint that allows no token."""

    may_end = complete = False

    def mask(self) -> np.ndarray:
        return token_bits((), VOCAB)

    def forced(self) -> list[int]:
        return []

    def accept(self, token: int) -> None:
        raise AssertionError

    def copy(self) -> Nothing:
        return self


@pytest.mark.parametrize("settings", [GREEDY, np.array([1, 3, 0.9, 0.1, 0.5], np.float32)], ids=["greedy", "sampled"])
def test_a_mask_that_leaves_nothing_is_no_odd_logit(settings: np.ndarray, where: str | None) -> None:
    model = open_model(LLAMA, small_vocabularies.byte_level(VOCAB), 64, 16, Placement(where, sequences=2))
    rows = Rows([3, 4, 5], 0, [0], 3, [settings] * 3, [token_bits(t, VOCAB) for t in ([], [7], range(VOCAB))])
    ids = model.decoder.collect(model.decoder.launch(Batch([rows]))).ids.tolist()
    assert ids[:2] == [-2, 7] and ids[2] >= 0
    batcher, options = Batcher(model.decoder, 2), GenerationOptions(max_tokens=5)
    text = TextStream(small_vocabularies.byte_level(VOCAB))
    nothing = Generation(model.decoder, PagedSequence(batcher.pool), PROMPT, options, (), text, Nothing())
    other = model.generation(PagedSequence(batcher.pool), PROMPT, options)
    for generation in (nothing, other):
        batcher.add(generation)
    while batcher.busy:
        batcher.step()
    assert "of the tokens that the grammar allows next, the model rules out all" in str(nothing.error)
    assert other.finish_reason == "length" and other.error is None
    model.decoder.close()


def test_a_grammar_that_cannot_go_on_fails_its_request_alone(where: str | None) -> None:
    with open_engine(where) as engine:
        wanted = engine.submit(PROMPT, max_tokens=12).result().tokens
        other = engine.submit(PROMPT, max_tokens=12)
        stuck = engine.submit(PROMPT, grammar=Grammar.regex("[a-z]{3}日"))  # which this vocabulary cannot spell
        with pytest.raises(HightideError, match="no token of this model can go on with what the grammar wants"):
            stuck.result(60)
        assert other.result(60).tokens == wanted and engine.stats().pages_used == 0
        with pytest.raises(InputError, match="logit_bias, the penalties and the grammar leave no token to choose"):
            bias = {token: -float("inf") for token in range(VOCAB)}
            engine.submit(PROMPT, grammar=Grammar.regex("[ab]x"), logit_bias=bias).result(60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grammar": "[0-9]+"}, r"grammar must be a Grammar, such as Grammar.json_schema gives, not '\[0-9\]\+'"),
        ({"made": [1, 999]}, "token id 999 is outside the vocabulary of 131"),
        ({"made": [-1]}, "a token id in made"),
        ({"made": "abc"}, "made must be a list of token ids, not 'abc'"),
        ({"made": [1], "n": 2}, "made is the beginning of one answer"),
        ({"made": [65], "grammar": "digits"}, "the tokens in made do not fit: the grammar cannot be followed further"),
    ],
)
def test_bad_requests_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    if options.get("grammar") == "digits":
        options = {**options, "grammar": Grammar.regex("[0-9]+")}
    with open_engine("cpu") as engine, pytest.raises(InputError, match=message):
        engine.submit(PROMPT, **options)


def test_a_grammar_needs_a_tokenizer() -> None:
    with (
        Engine(LLAMA, device="cpu", context=32) as engine,
        pytest.raises(InputError, match="a grammar needs a tokenizer"),
    ):
        engine.submit(PROMPT, grammar=person())


# ---- going on


CUT = (
    *("greedy", "sampled", "penalties", "logprobs", "stop", "speculate", "shift"),
    *("grammar", "sampled grammar", "all", "characters"),
)


@cache
def going_on() -> dict[str, dict[str, Any]]:
    return {
        "greedy": {},
        "sampled": {"temperature": 1.0, "top_k": 60, "seed": 5},
        "penalties": {"temperature": 1.0, "seed": 6, "repetition_penalty": 1.3, "frequency_penalty": 0.3},
        "logprobs": {"temperature": 1.0, "seed": 6, "logprobs": 1},
        "stop": {"temperature": 1.5, "seed": 1, "stop": ["e", "Yx", "é"], "max_tokens": 60},
        "speculate": {"temperature": 0.6, "seed": 2, "speculate": True},
        "shift": {"temperature": 1.0, "seed": 3, "on_full": "shift", "max_tokens": 45, "ignore_eos": True},
        "grammar": {"grammar": person()},
        "sampled grammar": {"temperature": 1.0, "seed": 7, "grammar": person(), "max_tokens": 60},
        "all": {"temperature": 1.0, "seed": 8, "grammar": person(), "presence_penalty": 0.5, "stop": ["true"]},
        "characters": {"temperature": 1.0, "seed": 9, "grammar": Grammar.regex("é{2,}(é|abc)*")},
    }


@pytest.mark.parametrize("name", CUT)
def test_an_answer_goes_on_from_any_token(name: str, where: str | None) -> None:
    options = {"max_tokens": 24, **going_on()[name]}
    with open_engine(where, context=24 if name == "shift" else 64) as engine:
        whole = engine.submit(PROMPT, **options).result(60)
        finds_its_end = "stop" in options or "grammar" in options
        assert len(whole.tokens) > 3 and (whole.finish_reason == "stop" or not finds_its_end)
        for cut in range(0, len(whole.tokens) + 1, 1 if where == "cpu" else 5):
            rest = engine.submit(PROMPT, made=whole.tokens[:cut], **options).result(60)
            assert rest.tokens == whole.tokens[cut:] and rest.finish_reason == whole.finish_reason, cut
            assert [piece.text for piece in rest.pieces] == [piece.text for piece in whole.pieces[cut:]], cut
            assert rest.stats.new_tokens == len(rest.tokens) and rest.stats.prompt_tokens == len(PROMPT)
