"""The engine on small random models: whatever happened before, an answer is that of a fresh session.

Every test runs on the NumPy references, and on the GPU where there is an adapter.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hightide import LLM
from hightide.errors import HightideError, InputError, ProgramError
from hightide.gpu.device import adapters
from hightide.gpu.recorder import Recorder
from hightide.llm.decoder import Decoder, RaggedDecoder
from hightide.llm.options import GenerationOptions
from hightide.llm.token_sampling import Sampling, find_draft
from hightide.ops.sampling.sampling import sample
from hightide.planning.explain import explain
from hightide.pte.program import load

TESTS = Path(__file__).parents[1]
CONTEXT, CHUNK, VOCAB = 48, 8, 131
PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


def path(name: str) -> Path:
    return TESTS / ("conformance" if name.endswith(".pte") else "models") / name


def open_llm(name: str = "llama.gguf", where: str | None = "cpu", **options: Any) -> LLM:
    if name.endswith(".gguf"):
        options = {"context": CONTEXT, "chunk": CHUNK} | options
    return LLM(path(name), device=where, **options)


@pytest.fixture
def llm(where: str | None) -> LLM:
    """A llama whose cache was used before."""
    llm = shared_llm(where)
    llm.reset()
    return llm


@cache
def shared_llm(where: str | None) -> LLM:
    return open_llm(where=where)


def random_ids(rng: np.random.Generator, length: int, vocab: int = VOCAB) -> list[int]:
    return rng.integers(0, vocab, length).tolist()


def one_by_one(llm: LLM, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy ids without the engine: token by token, from position 0, the largest of the logits."""
    ids: list[int] = []
    straight = llm.straight()
    for position in range(len(prompt) + count - 1):
        token = prompt[position] if position < len(prompt) else ids[-1]
        step = straight.collect(straight.launch([token], position, logits=True))
        assert step.logits is not None
        if position >= len(prompt) - 1:
            ids.append(int(step.logits[-1].argmax()))
    llm.reset()
    return ids


# ---- one session through many turns


class Twin:
    """What a fresh session answers, by prompt and options."""

    def __init__(self, open_it: Callable[[], LLM]) -> None:
        self.open_it, self.answers = open_it, 0
        self.llm = open_it()

    def answer(self, prompt: list[int], options: dict[str, Any]) -> list[int]:
        self.answers += 1
        if self.answers % 40 == 0:  # now and then a new session, else the one there is put back to its first state
            self.llm = self.open_it()
        self.llm.reset()
        if isinstance(self.llm.decoder, RaggedDecoder):
            self.llm.decoder.session.reset()
        return self.llm.generate(prompt, **options).tokens


WAYS: list[dict[str, Any]] = [
    {},
    {"speculate": True},
    {"temperature": 0.8, "top_k": 20, "seed": 5},
    {"temperature": 1.2, "top_p": 0.9, "min_p": 0.01, "seed": 6},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.2},
    {"logprobs": 2},
]


@pytest.mark.parametrize(
    "name",
    ["llama.gguf", "llama_gqa.pte"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("gemma3.gguf", "llama_all_logits.pte")],
)
@pytest.mark.parametrize("turns", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_random_turns_are_like_fresh_sessions(name: str, turns: int, where: str | None, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    llm = open_llm(name, where)
    twin = Twin(lambda: open_llm(name, where))
    vocab, context = llm.decoder.vocab_size, min(CONTEXT, llm.context)
    saved: list[int] | None = None
    done = dict.fromkeys(("new", "go on", "rewind", "reset", "stop", "save", "restore", "abandon"), 0)
    for _ in range(turns):
        kind = str(rng.choice(list(done)))
        done[kind] += 1
        if kind == "reset":
            llm.reset()
        elif kind == "rewind":
            llm.truncate(int(rng.integers(0, len(llm.tokens) + 1)))
        elif kind == "save":
            llm.save_state(tmp_path / "state")
            saved = list(llm.tokens)
        elif kind == "restore" and saved is not None:
            llm.load_state(tmp_path / "state")
            assert llm.tokens == saved
        kept = [] if kind == "new" else llm.tokens[: context - 12]
        prompt = kept + random_ids(rng, int(rng.integers(1, context - len(kept) - 4)), vocab)
        options = {"max_tokens": int(rng.integers(1, 10)), **WAYS[int(rng.integers(len(WAYS)))]}
        expected = twin.answer(prompt, options)
        if kind in ("stop", "abandon"):
            stream, part = llm.stream(prompt, **options), int(rng.integers(0, 4))
            got = [piece.token for piece, _ in zip(stream, range(part), strict=False)]
            assert got == expected[:part], (kind, prompt, options)
            if kind == "stop":
                stream.close()
            del stream
        done_now = llm.generate(prompt, **options)
        assert done_now.tokens == expected, (kind, prompt, options)
        assert done_now.stats.reused_tokens >= min(len(kept), len(prompt) - 1)
    assert min(done.values()) >= turns // 30


# ---- prompts and the context


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5, CONTEXT - 4])
def test_a_prompt_in_chunks_is_like_one_token_at_a_time(llm: LLM, length: int) -> None:
    prompt = random_ids(np.random.default_rng(length), length)
    seen: list[tuple[int, int]] = []
    done = llm.generate(prompt, max_tokens=5, progress=lambda done, every: seen.append((done, every)))
    assert done.tokens == one_by_one(llm, prompt, 5)
    assert (done.finish_reason, done.stats.prompt_tokens, done.stats.new_tokens) == ("length", length, 5)
    assert seen == [(min(n, length), length) for n in range(CHUNK, length + CHUNK, CHUNK)]


def test_a_prompt_may_fill_the_context_and_no_more(llm: LLM) -> None:
    prompt = random_ids(np.random.default_rng(0), CONTEXT)
    done = llm.generate(prompt)
    assert done.tokens == one_by_one(llm, prompt, 1) and done.finish_reason == "context"
    with pytest.raises(InputError, match=f"has {CONTEXT + 1} tokens; the context holds {CONTEXT}"):
        llm.generate([*prompt, 1])


@pytest.mark.parametrize("options", [{}, {"speculate": True}, {"logprobs": 1}])
def test_generation_ends_at_a_full_context(llm: LLM, options: dict[str, Any]) -> None:
    expected = one_by_one(llm, PROMPT, CONTEXT - len(PROMPT) + 1)
    done = llm.generate(PROMPT, **options)
    assert done.tokens == expected and done.finish_reason == "context"
    assert llm.generate(PROMPT, max_tokens=3, **options).tokens == expected[:3]


@pytest.mark.parametrize("options", [{}, {"speculate": True}, {"logprobs": 1}])
def test_a_shifted_context_goes_on(llm: LLM, options: dict[str, Any]) -> None:
    done = llm.generate(PROMPT, max_tokens=100, on_full="shift", **options)
    assert len(done.tokens) == 100 and done.finish_reason == "length"
    # At each full context, what is kept of it is the prompt of what follows.
    sequence, expected = list(PROMPT), []
    while len(expected) < 100:
        more = one_by_one(llm, sequence, CONTEXT - len(sequence) + 1)
        sequence, expected = sequence + more, expected + more
        sequence = sequence[: CONTEXT // 8] + sequence[-(CONTEXT // 2) :]
    assert done.tokens == expected[:100]
    assert done.stats.prompt_tokens == len(PROMPT) and done.stats.reused_tokens == 0


def test_a_context_of_one_token_shifts(where: str | None) -> None:
    llm = open_llm(where=where, context=1)
    assert len(llm.generate([5], max_tokens=6, on_full="shift").tokens) == 6
    assert llm.generate([5], max_tokens=6).finish_reason == "context"


def test_a_common_prefix_is_reused(llm: LLM) -> None:
    first = llm.generate(PROMPT, max_tokens=6)
    longer = PROMPT + first.tokens + [7, 8]
    again = llm.generate(longer, max_tokens=4)
    assert again.stats.reused_tokens >= len(PROMPT) + 5
    assert again.tokens == one_by_one(llm, longer, 4)
    llm.generate(PROMPT, max_tokens=1)
    assert llm.generate(PROMPT, max_tokens=1).stats.reused_tokens == len(PROMPT) - 1  # the last one gives the logits


# ---- speculation

REPETITIVE = ([11, 22, 33, 44] * 8)[:30]


def test_a_draft_is_what_followed_last_time() -> None:
    assert find_draft([1, 2, 3, 4, 1, 2, 3], 2) == [4, 1]
    assert find_draft([1, 2, 9, 2, 5, 1, 2], 3) == [9, 2, 5]  # the longest n-gram, not the newest token
    assert find_draft([7, 1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]  # a loop goes on as it did
    assert find_draft([7, 7, 7], 3) == [7, 7, 7]
    assert find_draft([1, 2, 3], 4) == [] and find_draft([1, 1], 0) == [] and find_draft([1], 4) == []


@pytest.mark.parametrize("prompt", [REPETITIVE, PROMPT, [5], random_ids(np.random.default_rng(3), 29)])
def test_speculation_changes_no_token(llm: LLM, prompt: list[int]) -> None:
    count = CONTEXT - len(prompt) + 1
    expected = one_by_one(llm, prompt, count)
    done = llm.generate(prompt, speculate=True)
    assert done.tokens == expected
    assert done.stats.calls <= count - 1
    llm.reset()
    plain = llm.generate(prompt)
    assert plain.tokens == expected and plain.stats.calls == count - 1


@pytest.mark.parametrize("name, most", [("gemma3.gguf", 30), ("llama_tied.gguf", 90)])
def test_speculation_takes_fewer_calls_than_tokens_where_text_repeats(name: str, most: int, where: str | None) -> None:
    """Models of random weights that fall into loops of their own."""
    llm = open_llm(name, where, context=200)
    done = llm.generate(PROMPT, speculate=True, max_tokens=150)
    assert len(done.tokens) == 150 and done.stats.calls <= most
    assert llm.generate(PROMPT, max_tokens=150).tokens == done.tokens


# ---- sampling


def test_a_seed_decides_the_text(llm: LLM) -> None:
    def draw(seed: int | None, **options: Any) -> list[int]:
        return llm.generate(PROMPT, max_tokens=20, seed=seed, temperature=1.5, **options).tokens

    assert draw(1) == draw(1) != draw(2)
    assert draw(None) != draw(None)
    assert draw(1, logprobs=1) == draw(1, logprobs=1) != draw(2, logprobs=1)


@pytest.mark.parametrize("options", [{}, {"logprobs": 1}])
def test_a_seed_decides_the_text_however_the_prompt_is_read(llm: LLM, options: dict[str, Any]) -> None:
    prompt = random_ids(np.random.default_rng(2), 3 * CHUNK)
    settings = {"temperature": 1.5, "seed": 3, "max_tokens": 12, **options}
    whole = llm.generate(prompt, **settings)
    reused = llm.generate(prompt, **settings)
    assert whole.stats.reused_tokens == 0 and reused.stats.reused_tokens == len(prompt) - 1
    assert whole.tokens == reused.tokens


@pytest.mark.parametrize("extra", [{}, {"logprobs": 1}])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0, "top_k": 5, "top_p": 0.5},
        {"temperature": 2.0, "top_k": 1},
        {"temperature": 2.0, "top_p": 1e-6},
        {"temperature": 2.0, "min_p": 1.0},
    ],
)
def test_settings_that_leave_one_token_are_greedy(llm: LLM, options: dict[str, Any], extra: dict[str, Any]) -> None:
    expected = one_by_one(llm, PROMPT, 12)
    assert llm.generate(PROMPT, max_tokens=12, seed=1, **options, **extra).tokens == expected


def test_the_device_draws_as_the_host_does(llm: LLM) -> None:
    options = {"temperature": 1.3, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "seed": 4, "max_tokens": 20}
    on_device = llm.generate(PROMPT, **options).tokens
    rng, sequence = np.random.default_rng(4), list(PROMPT)
    for token in on_device:
        logits = _logits(llm, sequence).astype(np.float64)
        assert token == sample(logits, np.array([1.3, 40, 0.95, 0.01, np.float32(rng.uniform())]))
        sequence.append(token)


def _logits(llm: LLM, prompt: Sequence[int]) -> np.ndarray:
    """Of the token after the prompt."""
    straight = llm.straight()
    for first in range(0, len(prompt), CHUNK):
        step = straight.collect(straight.launch(prompt[first : first + CHUNK], first, logits=True))
    assert step.logits is not None
    return step.logits[-1]


def test_logprobs_are_those_of_the_logits(llm: LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=6, logprobs=VOCAB)
    sequence = list(PROMPT)
    for piece in done.pieces:
        logits = _logits(llm, sequence).astype(np.float64)
        exact = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        got = dict(piece.alternatives)
        assert piece.alternatives[0][0] == piece.token and piece.logprob == piece.alternatives[0][1]
        np.testing.assert_allclose([got[n] for n in range(VOCAB)], exact, atol=1e-4)
        assert abs(sum(np.exp(list(got.values()))) - 1) < 1e-9
        sequence.append(piece.token)
    few = llm.generate(PROMPT, max_tokens=6, logprobs=3)
    assert [p.alternatives for p in few.pieces] == [p.alternatives[:3] for p in done.pieces]
    assert all(sum(np.exp([value for _, value in piece.alternatives])) <= 1 for piece in few.pieces)
    sampled = llm.generate(PROMPT, max_tokens=6, logprobs=VOCAB, temperature=1.0, seed=2)
    assert all(piece.logprob == dict(piece.alternatives)[piece.token] for piece in sampled.pieces)


def test_biases_and_penalties_change_what_is_chosen(llm: LLM) -> None:
    greedy = llm.generate(PROMPT, max_tokens=12).tokens
    assert llm.generate(PROMPT, max_tokens=12, logit_bias={7: 1e4}).tokens == [7] * 12
    without = llm.generate(PROMPT, max_tokens=12, logit_bias={greedy[0]: -1e4}).tokens
    assert greedy[0] not in without
    for name in ("presence_penalty", "frequency_penalty"):
        fresh = llm.generate(PROMPT, max_tokens=20, **{name: 1e4}).tokens
        assert len(set(fresh)) == 20 and not set(fresh) & set(PROMPT)
    again = llm.generate(PROMPT, max_tokens=20, repetition_penalty=1e-6, logit_bias={PROMPT[0]: 1e3}).tokens
    assert set(again) == {PROMPT[0]}


@pytest.mark.parametrize("options", [{}, {"speculate": True}, {"logprobs": 1}])
def test_where_an_answer_ends(llm: LLM, options: dict[str, Any]) -> None:
    expected = llm.generate(PROMPT, max_tokens=12).tokens
    end = expected[5]
    done = llm.generate(PROMPT, max_tokens=12, stop_ids=[end], **options)
    assert done.tokens == expected[: expected.index(end)] and done.finish_reason == "stop"
    none = llm.generate(PROMPT, max_tokens=0, **options)
    assert (none.tokens, none.text, none.finish_reason) == ([], "", "length")
    one = llm.generate(PROMPT, max_tokens=1, **options)
    assert (one.tokens, one.finish_reason, one.stats.calls) == (expected[:1], "length", 0)
    assert llm.generate(PROMPT, max_tokens=12, **options).tokens == expected


def test_end_tokens_can_be_ignored(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = llm.generate(PROMPT, max_tokens=12).tokens
    monkeypatch.setattr(llm.model, "ends", frozenset({expected[5]}))
    assert llm.generate(PROMPT, max_tokens=12).tokens == expected[: expected.index(expected[5])]
    assert llm.generate(PROMPT, max_tokens=12, ignore_eos=True).tokens == expected
    stopped = llm.generate(PROMPT, max_tokens=12, ignore_eos=True, stop_ids=[expected[5]])
    assert stopped.tokens == expected[: expected.index(expected[5])]


BAD: list[tuple[Any, dict[str, Any], str]] = [
    (PROMPT, {"temperature": -1}, "temperature cannot be -1"),
    (PROMPT, {"temperature": float("nan")}, "temperature must be a number, not nan"),
    (PROMPT, {"temperature": float("inf")}, "temperature must be a number, not inf"),
    (PROMPT, {"temperature": "hot"}, "temperature must be a number, not 'hot'"),
    (PROMPT, {"top_k": -1}, "top_k cannot be -1"),
    (PROMPT, {"top_p": 0}, "top_p cannot be 0"),
    (PROMPT, {"top_p": 1.1}, "top_p cannot be 1.1"),
    (PROMPT, {"min_p": 2}, "min_p cannot be 2"),
    (PROMPT, {"repetition_penalty": 0}, "repetition_penalty cannot be 0"),
    (PROMPT, {"presence_penalty": float("nan")}, "presence_penalty must be a number, not nan"),
    (PROMPT, {"logprobs": -1}, "logprobs cannot be -1"),
    (PROMPT, {"logit_bias": {VOCAB: 1.0}}, f"logit_bias names token {VOCAB}, but the vocabulary ends at {VOCAB - 1}"),
    (PROMPT, {"logit_bias": {1: float("nan")}}, "must be a number, not nan"),
    (PROMPT, {"max_tokens": -1}, "max_tokens must be at least 0, not -1"),
    (PROMPT, {"on_full": "wrap"}, "on_full must be 'stop' or 'shift', not 'wrap'"),
    (PROMPT, {"speculate": True, "frequency_penalty": 1.0}, "speculation needs .* no penalties and no logprobs"),
    (PROMPT, {"speculate": True, "logprobs": 1}, "speculation needs .* no penalties and no logprobs"),
    (PROMPT, {"stop": ["x"]}, "stop strings need a tokenizer"),
    (PROMPT, {"warmth": 1.0}, "there is no option 'warmth'; the options are max_tokens, "),
    ([], {}, "the prompt is empty"),
    ([1, VOCAB], {}, f"token id {VOCAB} is outside the vocabulary of {VOCAB}"),
    ([-1], {}, "token id -1 is outside"),
    ("text", {}, "llama.gguf has no tokenizer"),
    ([{"role": "user", "content": "hi"}], {}, "llama.gguf has no tokenizer"),
    ([1, {"role": "user"}], {}, "a prompt is text, token ids, or messages"),
    (None, {}, "a prompt is text, token ids, or messages"),
]


@pytest.mark.parametrize("prompt, options, message", BAD)
def test_what_makes_no_sense_is_refused_in_one_sentence(prompt: Any, options: dict[str, Any], message: str) -> None:
    llm = shared_llm("cpu")
    llm.generate(PROMPT, max_tokens=2)
    held = list(llm.tokens)
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        llm.stream(prompt, **options)
    assert "\n" not in str(caught.value) and llm.tokens == held


@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
@pytest.mark.parametrize("name, most", [("llama.gguf", 256), ("llama_gqa.pte", 96), ("llama_nokv.pte", 47)])
def test_the_context_asked_for_must_be_there(name: str, most: int) -> None:
    with pytest.raises(InputError, match=f"has a context of {most} tokens; it cannot use {most + 1}"):
        open_llm(name, "cpu", context=most + 1)
    with pytest.raises(InputError, match="context must be at least 1, not 0"):
        open_llm(name, "cpu", context=0)
    assert open_llm(name, "cpu", context=20).generate(PROMPT).finish_reason == "context"


# ---- what a step costs, and in which order things happen


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["llama.gguf", "llama_gqa.pte", "llama_all_logits.pte"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.9, "top_p": 0.9, "seed": 1}])
def test_a_step_brings_back_an_id(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if not adapters():
        pytest.skip("no WebGPU adapter")
    llm, sizes, read = open_llm(name, None), [], Recorder.read

    def counting(self: Recorder, *args: Any) -> list[bytes]:
        data = read(self, *args)
        sizes.append(sum(map(len, data)))
        return data

    monkeypatch.setattr(Recorder, "read", counting)
    stream = llm.stream(PROMPT[:CHUNK], max_tokens=20, **options)
    next(stream)
    sizes.clear()
    for _ in range(10):
        next(stream)
    assert sizes == [4] * 10
    stream.close()


class Order:
    """A decoder that writes down what it is asked."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.events = decoder, []
        self.launched = self.collected = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.decoder, name)

    def launch(self, *args: Any, **options: Any) -> Any:
        self.launched += 1
        self.events.append(f"launch {self.launched}")
        return self.launched, self.decoder.launch(*args, **options)

    def collect(self, ticket: Any) -> Any:
        self.collected += 1
        assert ticket[0] == self.collected, "calls are collected in order"
        self.events.append(f"collect {ticket[0]}")
        return self.decoder.collect(ticket[1])

    def abandon(self) -> None:
        self.collected = self.launched
        self.decoder.abandon()


@pytest.fixture
def order(where: str | None) -> Iterator[tuple[LLM, Order]]:
    llm = shared_llm(where)
    llm.reset()
    order = Order(llm.decoder)
    llm.model.decoder = llm.batcher.decoder = order  # type: ignore[assignment]
    yield llm, order
    llm.reset()
    llm.model.decoder = llm.batcher.decoder = order.decoder
    assert order.launched == order.collected, "a call is still under way"


def test_the_next_step_is_launched_before_a_token_is_handed_out(order: tuple[LLM, Order]) -> None:
    llm, calls = order
    for n, _ in enumerate(llm.stream(PROMPT[:CHUNK], max_tokens=4), 1):
        calls.events.append(f"token {n}")
    assert calls.events == [
        "launch 1",
        *("launch 2", "collect 1", "token 1"),
        *("launch 3", "collect 2", "token 2"),
        *("launch 4", "collect 3", "token 3"),
        *("collect 4", "token 4"),  # nothing is launched for a token that nobody wants
    ]


def test_what_needs_the_logits_waits_for_them(order: tuple[LLM, Order]) -> None:
    llm, calls = order
    for n, _ in enumerate(llm.stream(PROMPT[:CHUNK], max_tokens=2, logprobs=1), 1):
        calls.events.append(f"token {n}")
    assert calls.events == ["launch 1", "collect 1", "token 1", "launch 2", "collect 2", "token 2"]


# ---- streams that end early


def test_a_closed_stream_leaves_the_session_usable(order: tuple[LLM, Order]) -> None:
    llm, calls = order
    expected = llm.generate(PROMPT, max_tokens=8).tokens
    for count in (0, 1, 3, 8):
        stream = llm.stream(PROMPT, max_tokens=8)
        got = [next(stream).token for _ in range(count)]
        stream.close()
        assert got == expected[:count] and calls.launched == calls.collected
        assert stream.finish_reason == ("length" if count == 8 else "closed") and list(stream) == []
    with llm.stream(PROMPT, max_tokens=8) as stream:
        next(stream)
    assert calls.launched == calls.collected
    assert llm.generate(PROMPT, max_tokens=8).tokens == expected


@pytest.mark.parametrize("options", [{}, {"speculate": True}, {"logprobs": 1}])
def test_an_error_of_the_consumer_leaves_the_session_usable(order: tuple[LLM, Order], options: dict[str, Any]) -> None:
    llm, _ = order
    expected = llm.generate(PROMPT, max_tokens=8).tokens
    stream = llm.stream(PROMPT, max_tokens=8, **options)  # still referred to when the next one starts
    with pytest.raises(ZeroDivisionError):
        for n, _piece in enumerate(stream):
            1 / (2 - n)
    assert llm.generate(PROMPT, max_tokens=8, **options).tokens == expected
    assert stream.finish_reason == "closed" and list(stream) == []


def test_an_abandoned_stream_leaves_the_session_usable(order: tuple[LLM, Order]) -> None:
    llm, calls = order
    expected = llm.generate(PROMPT, max_tokens=8).tokens
    stream = llm.stream(PROMPT, max_tokens=8)
    next(stream)
    del stream
    gc.collect()
    assert llm.generate(PROMPT, max_tokens=8).tokens == expected
    assert calls.launched == calls.collected


def test_streams_in_turn(llm: LLM) -> None:
    prompts = [PROMPT, PROMPT[:4], [5, *PROMPT]]
    expected = [llm.generate(prompt, max_tokens=6).tokens for prompt in prompts]
    llm.reset()
    streams = [llm.stream(prompt, max_tokens=6) for prompt in prompts]  # none has begun yet
    assert [[piece.token for piece in stream] for stream in streams] == expected


@pytest.mark.parametrize("change", ["another", "reset", "truncate", "save_state", "load_state"])
def test_what_changes_the_state_closes_a_stream(llm: LLM, change: str, tmp_path: Path) -> None:
    expected = llm.generate(PROMPT, max_tokens=8).tokens
    llm.save_state(tmp_path / "state")
    stream = llm.stream(PROMPT, max_tokens=8)
    next(stream)
    if change == "another":
        assert llm.generate(PROMPT[:4], max_tokens=3).finish_reason == "length"
    elif change == "truncate":
        llm.truncate(3)
    elif change == "reset":
        llm.reset()
    else:
        getattr(llm, change)(tmp_path / "state")
    assert list(stream) == [] and stream.finish_reason == "closed"
    assert llm.generate(PROMPT, max_tokens=8).tokens == expected


# ---- state


def test_a_state_goes_to_another_session(llm: LLM, where: str | None, tmp_path: Path) -> None:
    first = llm.generate(PROMPT, max_tokens=6)
    llm.save_state(tmp_path / "state")
    prompt = PROMPT + first.tokens + [9]
    expected = one_by_one(llm, prompt, 5)
    other = open_llm(where=where)
    other.load_state(tmp_path / "state")
    done = other.generate(prompt, max_tokens=5)
    assert done.tokens == expected and done.stats.reused_tokens >= len(PROMPT) + 5


def test_a_state_that_does_not_fit_changes_nothing(llm: LLM, tmp_path: Path) -> None:
    expected = llm.generate(PROMPT, max_tokens=4).tokens
    held = list(llm.tokens)
    llm.save_state(tmp_path / "good")
    with np.load(tmp_path / "good") as good:
        model = good["model"]
    bad: dict[str, tuple[type[HightideError], Callable[[Path], object]]] = {
        "missing": (ProgramError, lambda path: None),
        "empty": (ProgramError, lambda path: path.write_bytes(b"")),
        "text": (ProgramError, lambda path: path.write_text("not a state")),
        "torn zip": (ProgramError, lambda path: path.write_bytes(b"PK\3\4" + bytes(40))),
        "array": (ProgramError, lambda path: save_array(path)),
        "other": (InputError, lambda path: save_other("gemma3.gguf", path)),
        "same dims": (InputError, lambda path: save_other("llama_linear.gguf", path)),
        "other program": (InputError, lambda path: save_other("llama_gqa.pte", path)),
        "longer": (InputError, lambda path: save_other("llama.gguf", path, context=64, max_tokens=50)),
        "no state": (ProgramError, lambda path: save_arrays(path, x=np.zeros(3))),
        "float tokens": (ProgramError, lambda path: save_arrays(path, model=model, tokens=np.zeros(3))),
        "no caches": (InputError, lambda path: save_arrays(path, model=model, tokens=np.zeros(3, np.int64))),
        "alien tokens": (InputError, lambda path: save_arrays(path, model=model, tokens=np.array([VOCAB]))),
    }
    for name, (kind, write) in bad.items():
        write(tmp_path / name)
        with pytest.raises(kind) as caught:
            llm.load_state(tmp_path / name)
        assert "\n" not in str(caught.value) and llm.tokens == held, name
    for wrong in (-1, len(held) + 1):
        with pytest.raises(InputError, match=f"there are {len(held)} tokens, so {wrong} cannot be kept"):
            llm.truncate(wrong)
    assert llm.generate(PROMPT, max_tokens=4).tokens == expected


def save_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def save_arrays(path: Path, **arrays: Any) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def save_other(name: str, path: Path, max_tokens: int = 2, **options: Any) -> None:
    other = open_llm(name, "cpu", **options)
    other.generate(PROMPT, max_tokens=max_tokens)
    other.save_state(path)


# ---- the model as an object


def test_a_model_says_what_it_is() -> None:
    llm = open_llm()
    assert repr(llm) == "<LLM llama.gguf on NumPy, context 48, 0 tokens>"
    llm.generate(PROMPT, max_tokens=3)
    assert repr(llm) == f"<LLM llama.gguf on NumPy, context 48, {len(llm.tokens)} tokens>"
    llm.truncate(1)
    assert repr(llm) == "<LLM llama.gguf on NumPy, context 48, 1 token>"


@pytest.mark.parametrize("name", ["llama.gguf", "llama_nokv.pte"])
@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
def test_a_closed_model_is_refused(name: str, where: str | None, tmp_path: Path) -> None:
    with open_llm(name, where) as llm:
        stream = llm.stream(PROMPT, max_tokens=8)
        next(stream)
    assert list(stream) == [] and stream.finish_reason == "closed"
    llm.close()
    calls: list[Callable[[], object]] = [
        lambda: llm.generate(PROMPT),
        lambda: llm.stream(PROMPT),
        llm.reset,
        lambda: llm.truncate(0),
        lambda: llm.save_state(tmp_path / "state"),
        lambda: llm.load_state(tmp_path / "state"),
        lambda: llm.tokens,
    ]
    for call in calls:
        with pytest.raises(HightideError) as error:
            call()
        assert str(error.value) == f"{name} is closed; open it again with hightide.LLM"
    assert repr(llm) == f"<LLM {name} (closed)>" and llm.context >= CONTEXT - 1


def test_options_in_one_object(llm: LLM) -> None:
    options = GenerationOptions(max_tokens=6, seed=3, sampling=Sampling(temperature=1.5, top_k=20))
    expected = llm.generate(PROMPT, max_tokens=6, seed=3, temperature=1.5, top_k=20).tokens
    assert llm.generate(PROMPT, options).tokens == expected
    assert llm.generate(PROMPT, options, max_tokens=3).tokens == expected[:3]
    greedy = llm.generate(PROMPT, max_tokens=6).tokens
    assert llm.generate(PROMPT, options, temperature=0).tokens == greedy != expected


@pytest.mark.parametrize("name", ["llama.gguf", "llama_gqa.pte"])
def test_routes_are_checked(name: str) -> None:
    assert open_llm(name, routes={"linear.gemv": "split"}).generate(PROMPT, max_tokens=2).tokens
    with pytest.raises(InputError, match=r"linear\.gemv has no route 'x'; its routes are"):
        open_llm(name, routes={"linear.gemv": "x"})


@pytest.mark.gpu
@pytest.mark.parametrize("name", [pytest.param("llama.gguf", marks=pytest.mark.slow), "llama_gqa.pte"])
def test_routes_that_are_forced_are_taken(name: str) -> None:
    if not adapters():
        pytest.skip("no WebGPU adapter")
    taken = set()
    for option in ("split", "registers"):
        with open_llm(name, None, routes={"linear.gemv": option}) as llm:
            assert isinstance(llm.decoder, RaggedDecoder)
            session = llm.decoder.session
            given = [np.zeros((1, *s.dims[1:]) if s.dynamic else s.dims, s.dtype) for s in session.specs]
            given[0] = np.zeros((1, 1), np.int32)
            taken.add(tuple(row.route for row in explain(session, given).rows))
    assert len(taken) == 2


# ---- programs of the exporter


@pytest.mark.parametrize(
    "name", ["llama_gqa.pte", "llama_all_logits.pte", "llama_chunks.pte", "llama_nokv.pte", "llama_static.pte"]
)
@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
def test_programs_give_what_their_method_gives(name: str, where: str | None) -> None:
    llm = open_llm(name, where)
    forward = load(path(name), device=where).method()
    rng = np.random.default_rng(1)
    static = name == "llama_static.pte"
    assert llm.decoder.max_rows == forward.inputs[0].dims[1] == (1 if static else llm.decoder.max_rows)
    for length in (1, 7, 19 if static else 40):
        prompt = random_ids(rng, length, llm.decoder.vocab_size)
        count = min(8, llm.context - length + 1)
        expected: list[int] = []
        while len(expected) < count:
            sequence = [*prompt, *expected]
            if len(forward.inputs) == 1:
                outputs = forward(np.array([sequence]))
            else:
                for position in range(len(sequence)) if not expected else [len(sequence) - 1]:
                    outputs = forward(np.array([[sequence[position]]]), np.array([position]))
            expected.append(int(outputs[0].reshape(-1, llm.decoder.vocab_size)[-1].argmax()))
        done = llm.generate(prompt, max_tokens=count)
        assert done.tokens == expected
        assert llm.generate(prompt, max_tokens=count, speculate=True).tokens == expected
        assert llm.generate(prompt, max_tokens=count, logprobs=1).tokens == expected
        assert done.stats.device_bytes


@pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
def test_a_program_without_a_cache_fills_its_context(where: str | None) -> None:
    llm = open_llm("llama_nokv.pte", where)
    done = llm.generate(PROMPT)
    assert done.finish_reason == "context" and len(done.tokens) == llm.context - len(PROMPT) + 1
    assert len(llm.generate(PROMPT, max_tokens=50, on_full="shift").tokens) == 50


def test_a_tokenizer_given_by_path(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models

    words = Tokenizer(models.WordLevel({f"w{n}.": n for n in range(160)}, unk_token="w0."))
    words.decoder = decoders.ByteLevel()
    words.save(str(tmp_path / "words.json"))
    llm = open_llm("llama_gqa.pte", "cpu", tokenizer=tmp_path / "words.json")
    by_ids = open_llm("llama_gqa.pte", "cpu").generate([17], max_tokens=5)
    done = llm.generate("w17.", max_tokens=5)
    assert done.tokens == by_ids.tokens
    assert done.text == "".join(f"w{token}." for token in done.tokens)
    stop = f"w{by_ids.tokens[2]}."
    stopped = llm.generate("w17.", max_tokens=5, stop=[stop])
    assert stopped.finish_reason == "stop" and stopped.text == done.text[: done.text.index(stop)]
