"""The ragged form: rows of many sequences in one step give what each sequence gives alone, or it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ragged_batches import SIZES, Batches, alone, decoder, ragged_session, untouched, vocabulary_of

from hightide.errors import HightideError
from hightide.fuse import fuse
from hightide.fuse.half_storage import with_half_caches
from hightide.fuse.ragged import RAGGED_DYNAMIC, RAGGED_INPUTS, NotRaggedError, RaggedSizes, ragged
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder

TESTS = Path(__file__).parents[1]
MODELS = sorted(TESTS.glob("models/*.gguf"))
# Their graphs differ from a sister's in size or in constants.
SISTERS = ("gemma3_27b", "gemma3_global", "gemma3_scaled", "llama_llama3", "phi3_longrope", "qwen2_yarn")
SISTERS += ("command_r_plus", "falcon_40b", "gptneox_sequential", "olmo3", "stablelm_12b")
# Programs of the exporter whose method forward(tokens, position) is one graph.
NAMES = ["8da4w", "all_logits", "chunks", "fp16", "fp32", "g64", "gqa", "half_rope", "mqa", "static"]
PROGRAMS = [
    TESTS / f"conformance/{name}.pte"
    for name in (*(f"llama_{n}" for n in NAMES), "qwen2", "qwen3", "smollm2", "gemma_norms")
]
FILES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.stem in SISTERS else [])
    for path in (*MODELS, *PROGRAMS)
]


def assert_same_rows(
    graph: Graph, *forms: Graph, sizes: RaggedSizes = SIZES, seed: int = 0, limit: float = 1e-12
) -> None:
    """Each form gives the logits of each sequence alone, and touches no page that is not of a sequence."""
    lengths = (19, 1, 11, 6) if len(forms) > 1 else (7, 3)
    sequences = Batches(vocabulary_of(graph), lengths, sizes, seed).tokens
    expected = [alone(graph, tokens) for tokens in sequences]
    for form in forms:
        batches, session = Batches(vocabulary_of(graph), lengths, sizes, seed), ragged_session(form)
        for step in batches.steps():
            logits, ids = session.run(step.inputs)
            wanted = np.array([expected[sequence][position] for sequence, position in step.wanted])
            assert logits.shape == (1, *wanted.shape) and ids.dtype == np.int32
            assert np.abs(logits[0] - wanted).max() <= limit * np.ptp(wanted)
            np.testing.assert_array_equal(ids[0], np.where(step.allowed, wanted, -np.inf).argmax(axis=-1))
        assert all(untouched(pool, batches) for pool in session.read_state())


@pytest.mark.parametrize("path", FILES)
def test_rows_of_many_sequences_give_what_each_gives_alone(path: Path) -> None:
    graph = decoder(path)
    form = ragged(graph, SIZES)
    # Activations in 8 bits may fall on the other side of a rounding; folded constants are rounded to float32.
    limit = 2e-2 if "8da4w" in path.name else 1e-6 if "gemma_norms" in path.name else 1e-12
    assert_same_rows(graph, form, fuse(form), limit=limit)


def names(graph: Graph) -> Counter[str]:
    return Counter(call.name for call in graph.calls)


@pytest.mark.parametrize("path", FILES)
def test_a_ragged_graph_is_fused_as_that_of_one_sequence(path: Path) -> None:
    graph = decoder(path)
    fused = fuse(graph)
    one, many = names(fused), names(fuse(ragged(graph, SIZES)))
    free = ("aten.view_copy.default", "sym_size.int", "add", "sub", "et_vk.select_as_symint.default")
    ends = {"hightide.take_tokens.default": 1, "hightide.sample.default": 1 - one["hightide.sample.default"]}
    if "static" not in path.name:  # one sequence reads its tables by an index, which no pass fuses
        assert many["hightide.rope_attend_pages.default"] == one["hightide.rope_attend.default"]
        work = [sum(n for name, n in found.items() if name not in free) for found in (one, many)]
        selects = int("all_logits" in path.name)
        # A rotation that no pass joins with the cache reads its tables from the position on; of rows, it is given them.
        alone = [call for call in fused.calls if call.name == "et_vk.apply_rotary_emb_hf.default"]
        tables = {call.args[table] for call in alone for table in ("cos", "sin")}
        assert work[1] == work[0] + sum(ends.values()) + selects + len(tables)
    assert not many["aten.index.Tensor"]


def test_the_inputs_and_outputs_are_those_that_an_engine_fills() -> None:
    form = ragged(decoder(MODELS[0]), SIZES)
    dims = [value.dims for id in form.inputs if isinstance(value := form.values[id], TensorValue)]
    t, w = SIZES.rows, SIZES.wanted
    lists = [(SIZES.singles, 4), (SIZES.tiles, 4), (SIZES.table,), (1,)]
    masks = (w, -(-vocabulary_of(form) // 32))
    assert dims == [(1, t), (w,), (t,), (t,), (w,), (w, 5), masks, (w,), *lists]
    assert len(RAGGED_INPUTS) == len(RAGGED_DYNAMIC) == len(dims)
    logits, ids = (form.values[id] for id in form.outputs)
    assert isinstance(logits, TensorValue) and isinstance(ids, TensorValue)
    assert logits.dims[:2] == ids.dims == (1, w)


def test_a_step_without_wanted_rows_gives_none() -> None:
    graph = decoder(TESTS / "conformance/llama_fp32.pte")
    (step, *_) = Batches(vocabulary_of(graph), (9, 4)).steps()
    none, masks = np.zeros(0, np.int32), step.inputs[6]
    given = [*step.inputs[:4], none, np.zeros((0, 5), np.float32), masks, none, *step.inputs[8:]]
    logits, ids = ragged_session(fuse(ragged(graph, SIZES))).run(given)
    assert logits.shape == (1, 0, vocabulary_of(graph)) and ids.shape == (1, 0)


# ---- small decoders by hand

WIDTH, HEADS, DEPTH, VOCAB, MOST, CONTEXT = 12, 2, 6, 17, 8, 40


class Small:
    """A decoder of one layer, of which tests change one thing."""

    def __init__(self, most: int = MOST) -> None:
        b = self.b = GraphBuilder()
        self.rng = np.random.default_rng(5)
        self.tokens, self.input_pos = b.input((1, most), "int32"), b.input((1,), "int32")
        self.length = b.call("sym_size.int", self.tokens, 1)
        self.position = b.call("et_vk.select_as_symint.default", self.input_pos, 0, 0)
        self.end = b.call("add", self.length, self.position)
        self.caches = [b.zeros((1, CONTEXT, HEADS, DEPTH)) for _ in range(2)]
        self.x = b.call("aten.embedding.default", self.constant(VOCAB, WIDTH), self.tokens)

    def constant(self, *dims: int) -> TensorValue:
        return self.b.constant(self.rng.normal(size=dims).astype(np.float32))

    def linear(self, x: Any, rows: int = WIDTH) -> Any:
        return self.b.call("aten.linear.default", x, self.constant(rows, x.dims[-1]), None)

    def view(self, x: Any, *sizes: Any) -> Any:
        return self.b.call("aten.view_copy.default", x, list(sizes))

    def heads(self, x: Any) -> Any:
        return self.view(self.linear(x), 1, self.length, HEADS, DEPTH)

    def sdpa(self, q: Any, k: Any, v: Any, position: Any = None, mask: Any = None, causal: bool = True) -> Any:
        at = self.position if position is None else position
        args = (q, k, v, *self.caches, at, 1, mask, 0.0, causal, None)
        return self.b.call("sdpa_with_kv_cache.default", *args)

    def apart(self, q: Any, k: Any, v: Any, position: Any = None, causal: bool = True) -> Any:
        """As exporters write it where they cannot join the updates with attention."""
        for x, cache in zip((k, v), self.caches, strict=True):
            self.b.call("llama.update_cache.default", x, cache, self.position)
        at = self.position if position is None else position
        return self.b.call("llama.custom_sdpa.default", q, *self.caches, at, None, 0.0, causal)

    def coded(self, q: Any, k: Any, v: Any, depth: int = DEPTH) -> Any:
        """The same on 8-bit codes of the first elements of each head, with scales and zero points by row of a head."""
        b, given = self.b, []
        for x, cached in ((q, False), (k, True), (v, True)):
            x = b.call("aten.slice_copy.Tensor", x, 3, 0, depth, 1)
            choose = "quantized_decomposed.choose_qparams_per_token_asymmetric.default"
            scale, zero = b.call(choose, x, 1, dtype=("float32", "int32"))
            codes = b.call(
                "quantized_decomposed.quantize_per_token.default", x, scale, zero, -128, 127, 1, dtype="int8"
            )
            parts = [codes, b.call("aten._to_copy.default", zero, dtype="int8"), scale]
            if cached:
                held = [b.zeros((1, CONTEXT, *part.dims[2:]), part.dtype) for part in parts]
                for part, cache in zip(parts, held, strict=True):
                    b.call("llama.update_cache.default", part, cache, self.position, dtype=part.dtype)
                parts = held
            given.append(parts)
        codes, zeros, scales = zip(*given, strict=True)
        coding = [x for pair in zip(zeros, scales, strict=True) for x in pair]
        rule = (self.position, None, 0.0, True, None)
        made = b.call("llama.custom_quantized_sdpa.default", *codes, *rule, *coding, False, dtype="float32")
        return made if depth == DEPTH else b.call("aten.cat.default", [made, made], 3)

    def layer(self, x: Any, attend: Callable[..., Any] | None = None, **options: Any) -> Any:
        q, k, v = (self.heads(x) for _ in range(3))
        attended = (attend or self.sdpa)(q, k, v, **options)
        return self.b.call("aten.add.Tensor", x, self.linear(self.view(attended, 1, self.length, WIDTH)), 1)

    def graph(self, x: Any) -> Graph:
        """With logits of the last token."""
        return self.b.graph(self.linear(self.b.call("aten.select_copy.int", x, 1, -1), VOCAB))


def of_pairs(m: Small) -> Any:
    """A mixture of two experts: each token takes what its router gives."""
    gates = m.b.call("aten._softmax.default", m.linear(m.x, 3), -1, False)
    taken = m.b.call("aten.gather.default", gates, 2, m.b.call("aten.argmax.default", gates, -1, True, dtype="int32"))
    return m.b.call("aten.mul.Tensor", m.x, taken)


def learned_positions(m: Small, from_range: bool) -> Any:
    b = m.b
    if from_range:
        at = b.call("aten.arange.start", m.position, m.end, dtype="int32", dims=[(MOST,)])
    else:
        counts = b.call("aten.arange.default", m.length, dtype="int32", dims=[(MOST,)])
        at = b.call("aten.add.Tensor", counts, m.input_pos, 1, dtype="int32")
    return b.call("aten.add.Tensor", m.x, b.call("aten.embedding.default", m.constant(CONTEXT, WIDTH), at), 1)


def turned_by_hand(m: Small) -> Any:
    """x * cos + rotated x * sin, with tables sliced at the position."""
    b = m.b
    tables = [m.constant(CONTEXT, WIDTH) for _ in range(2)]
    cos, sin = (b.call("aten.slice_copy.Tensor", t, 0, m.position, m.end, 1, dims=[(MOST, WIDTH)]) for t in tables)
    halves = [b.call("aten.slice_copy.Tensor", m.x, 2, at, at + WIDTH // 2, 1) for at in (0, WIDTH // 2)]
    rotated = b.call("aten.cat.default", [b.call("aten.neg.default", halves[1]), halves[0]], -1)
    sin = b.call("aten.unsqueeze_copy.default", sin, 0)
    products = b.call("aten.mul.Tensor", m.x, cos), b.call("aten.mul.Tensor", rotated, sin)
    return b.call("aten.add.Tensor", *products, 1)


def normed_by_hand(m: Small) -> Any:
    b = m.b
    mean = b.call("aten.mean.dim", b.call("aten.mul.Tensor", m.x, m.x), [-1], True)
    return b.call("aten.mul.Tensor", m.x, b.call("aten.rsqrt.default", b.call("aten.add.Scalar", mean, 1e-5, 1)))


def moved(m: Small) -> Any:
    """Tokens that go around: [1, S, W] -> [W, S, 1] -> [S, W] -> [1, S, W]."""
    b = m.b
    turned = b.call("aten.permute_copy.default", m.x, [2, 1, 0])
    flat = b.call("aten.squeeze_copy.dims", b.call("aten.permute_copy.default", turned, [1, 2, 0]), [1])
    return b.call("aten.unsqueeze_copy.default", m.view(b.call("aten.flip.default", flat, [1]), -1, WIDTH), 0)


def in_parts(m: Small) -> Any:
    b = m.b
    parts = b.call("aten.split_with_sizes_copy.default", m.x, [5, 7], -1)
    wide = b.call("aten.expand_copy.default", b.call("aten.sum.dim_IntList", parts[0], [2], True), [-1, m.length, 5])
    return b.call("aten.cat.default", [wide, parts[1]], 2)


PROVEN: dict[str, Callable[[Small], Graph]] = {
    "plain": lambda m: m.graph(m.layer(m.x)),
    "updates apart": lambda m: m.graph(m.layer(m.x, m.apart)),
    "codes": lambda m: m.graph(m.layer(m.x, m.coded)),
    "what nobody reads": lambda m: (m.b.call("aten.select_copy.int", m.input_pos, 0, 0), m.graph(m.layer(m.x)))[1],
    "experts": lambda m: m.graph(m.layer(of_pairs(m))),
    "learned positions": lambda m: m.graph(m.layer(learned_positions(m, True))),
    "learned positions by a sum": lambda m: m.graph(m.layer(learned_positions(m, False))),
    "turned by hand": lambda m: m.graph(m.layer(turned_by_hand(m))),
    "normed by hand": lambda m: m.graph(m.layer(normed_by_hand(m))),
    "moved": lambda m: m.graph(m.layer(moved(m))),
    "in parts": lambda m: m.graph(m.layer(in_parts(m))),
    "a slice of the last": lambda m: m.b.graph(
        m.linear(m.b.call("aten.slice_copy.Tensor", m.layer(m.x), 1, -1, 2**63 - 1, 1), VOCAB)
    ),
    "every token, flat": lambda m: m.b.graph(m.linear(m.view(m.layer(m.x), m.length, WIDTH), VOCAB)),
    "the last of the logits": lambda m: m.b.graph(
        m.b.call("aten.select_copy.int", m.linear(m.layer(m.x), VOCAB), 1, -1)
    ),
}


@pytest.mark.parametrize("name", PROVEN)
def test_what_is_proven_is_right(name: str) -> None:
    graph = PROVEN[name](Small())
    form = ragged(graph, SIZES)
    for seed in range(3):
        assert_same_rows(graph, form, fuse(form), seed=seed)


def test_scales_of_codes_are_not_held_as_halves() -> None:
    """A half has eleven bits: it would round a scale by more than some codes differ."""
    for build, halves in (("plain", True), ("codes", False)):
        graph = PROVEN[build](Small())
        for form in (graph, ragged(graph, SIZES)):
            held = {value.dtype for value in with_half_caches(form).values if isinstance(value, TensorValue)}
            assert ("float16" in held) == halves


def test_a_head_of_every_token_is_taken_of_the_wanted_ones_only() -> None:
    fused = fuse(ragged(PROVEN["every token, flat"](Small()), SIZES))
    head = [call for call in fused.calls if call.name == "aten.linear.default"][-1]
    x = fused.values[head.args["x"]]
    assert isinstance(x, TensorValue) and x.dims[-2] == SIZES.wanted


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_a_call_of_one_token_becomes_one_of_many(kv_heads: int) -> None:
    """Dims of 1 that are not those of tokens stay 1."""
    m = Small(most=1)
    b = m.b
    at = b.call("aten.index.Tensor", m.constant(CONTEXT, WIDTH), [m.input_pos])
    x = b.call("aten.add.Tensor", m.x, at, 1)
    m.caches = [b.zeros((1, CONTEXT, kv_heads, DEPTH)) for _ in range(2)]
    flat = b.call("aten.squeeze_copy.dims", x, [1])
    q = b.call("aten.view_copy.default", m.linear(flat), [1, 1, HEADS, DEPTH])
    k, v = (b.call("aten.view_copy.default", m.linear(x, kv_heads * DEPTH), [1, 1, kv_heads, DEPTH]) for _ in range(2))
    flat = b.call("aten.view_copy.default", m.sdpa(q, k, v), [1, WIDTH])
    y = b.call("aten.unsqueeze_copy.default", m.linear(flat), 1)
    graph = m.graph(b.call("aten.add.Tensor", x, y, 1))
    form = ragged(graph, SIZES)
    assert_same_rows(graph, form, fuse(form))


# ---- what is refused


def summed(m: Small, *dims: int) -> Any:
    return m.b.call("aten.add.Tensor", m.x, m.b.call("aten.mean.dim", m.x, list(dims), True), 1)


def half(m: Small) -> Any:
    return m.b.call(
        "aten.mul.Tensor",
        m.x,
        m.b.call("aten.slice_copy.Tensor", m.constant(MOST, WIDTH), 0, 0, m.length, 1, dims=[(MOST, WIDTH)]),
    )


def last(m: Small, count: int) -> Any:
    return m.b.call("aten.slice_copy.Tensor", m.x, 1, -count, 2**63 - 1, 1)


def other_state(m: Small) -> Graph:
    state = m.b.zeros((1, 3, WIDTH))
    m.b.call("hightide.store.default", m.constant(1, 3, WIDTH), state)
    return m.graph(m.layer(m.x))


def cache_read(m: Small) -> Any:
    y = m.layer(m.x)
    return m.b.call("aten.add.Tensor", y, m.b.call("aten.sum.default", m.caches[0]), 1)


def shared_cache(m: Small) -> Any:
    q, k, v = (m.heads(m.x) for _ in range(3))
    twice = m.b.call(
        "aten.add.Tensor",
        m.apart(q, k, v),
        m.b.call("llama.custom_sdpa.default", q, *m.caches, m.position, None, 0.0, True),
        1,
    )
    return m.view(twice, 1, m.length, WIDTH)


def filled_cache(m: Small) -> Any:
    m.caches[0] = m.constant(1, CONTEXT, HEADS, DEPTH)
    return m.layer(m.x)


def turned(m: Small, start: Any) -> Any:
    tables = [m.constant(CONTEXT, DEPTH) for _ in range(2)]
    q, k = m.b.call("et_vk.apply_rotary_emb_hf.default", m.heads(m.x), m.heads(m.x), *tables, start)
    return m.view(m.sdpa(q, k, m.heads(m.x)), 1, m.length, WIDTH)


def in_place(m: Small) -> Any:
    tables = [
        m.b.call(
            "aten.slice_copy.Tensor", m.constant(CONTEXT, DEPTH // 2), 0, 0, m.length, 1, dims=[(MOST, DEPTH // 2)]
        )
        for _ in range(2)
    ]
    return m.b.call("et_vk.apply_rotary_emb.default", m.heads(m.x), m.heads(m.x), *tables)[0]


REFUSED: dict[str, tuple[Callable[[Small], Any], str]] = {
    "a mean over tokens": (lambda m: m.layer(summed(m, 1)), r"aten.mean.dim\) mixes the tokens"),
    "a mean over everything": (lambda m: m.layer(summed(m, 1, 2)), r"aten.mean.dim\) mixes the tokens"),
    "a softmax over tokens": (
        lambda m: m.layer(m.b.call("aten._softmax.default", m.x, 1, False)),
        r"aten._softmax.default\) mixes the tokens",
    ),
    "tokens in another order": (
        lambda m: m.layer(m.b.call("aten.add.Tensor", m.x, m.b.call("aten.flip.default", m.x, [1]), 1)),
        r"aten.flip.default\) mixes the tokens",
    ),
    "a norm over tokens": (
        lambda m: m.layer(m.b.call("aten.native_layer_norm.default", m.x, [MOST, WIDTH], None, None, 1e-5)[0]),
        r"aten.native_layer_norm.default\) mixes the tokens",
    ),
    "tokens joined with heads": (
        lambda m: m.view(m.view(m.x, -1), 1, m.length, WIDTH),
        r"aten.view_copy.default\) joins the dim of the tokens",
    ),
    "tokens seen as width": (
        lambda m: m.view(m.b.call("aten.permute_copy.default", m.x, [0, 2, 1]), 1, m.length, WIDTH),
        r"aten.view_copy.default\) joins the dim of the tokens",
    ),
    "tokens times tokens": (
        lambda m: m.b.call("aten.bmm.default", m.x, m.b.call("aten.permute_copy.default", m.x, [0, 2, 1])),
        r"aten.bmm.default\) has rows of tokens as its y",
    ),
    "tokens beside others": (
        lambda m: m.b.call("aten.cat.default", [m.x, m.x], 1),
        r"aten.cat.default\) joins tokens along their dim",
    ),
    "a bias by place": (
        lambda m: m.layer(m.b.call("aten.add.Tensor", m.x, m.constant(1, MOST, WIDTH), 1)),
        r"aten.add.Tensor\) treats tokens by their place",
    ),
    "the start of a table": (lambda m: m.layer(half(m)), r"aten.slice_copy.Tensor\) takes something else from a table"),
    "the first token": (
        lambda m: m.b.call("aten.select_copy.int", m.layer(m.x), 1, 0),
        r"aten.select_copy.int\) takes a token that",
    ),
    "all but the first": (
        lambda m: m.b.call("aten.slice_copy.Tensor", m.layer(m.x), 1, 1, 2**63 - 1, 1),
        r"aten.slice_copy.Tensor\) takes some of the tokens",
    ),
    "the last token with the last two": (
        lambda m: m.b.call("aten.add.Tensor", *(last(m, n) for n in (1, 2)), 1),
        r"aten.add.Tensor\) puts tokens together that are not the same",
    ),
    "not causal": (lambda m: m.layer(m.x, causal=False), r"sdpa_with_kv_cache.default\) is not causal"),
    "not causal, apart": (lambda m: m.layer(m.x, m.apart, causal=False), r"custom_sdpa.default\) is not causal"),
    "another position": (
        lambda m: m.layer(m.x, position=m.b.call("sub", m.position, m.length)),
        r"sdpa_with_kv_cache.default\) writes to a KV cache at another place",
    ),
    "attention from elsewhere": (
        lambda m: m.layer(m.x, m.apart, position=0),
        r"custom_sdpa.default\) attends from another place",
    ),
    "a cache that is read": (cache_read, r"aten.sum.default\) "),
    "half words of codes": (
        lambda m: m.layer(m.x, m.coded, depth=DEPTH // 2),
        r"custom_quantized_sdpa.default\) has rows of codes that are not whole words",
    ),
    "a cache of two layers": (shared_cache, r"custom_sdpa.default\) attends to a KV cache that another op"),
    "a cache with a past": (filled_cache, r"sdpa_with_kv_cache.default\) changes state of"),
    "attention without a cache": (
        lambda m: m.b.call("et_vk.sdpa.default", *(m.heads(m.x) for _ in range(3)), None, None),
        r"et_vk.sdpa.default\) is not known",
    ),
    "turned from 0": (lambda m: turned(m, 0), r"apply_rotary_emb_hf.default\) turns tokens by their place"),
    "turned from the end": (lambda m: turned(m, m.end), r"apply_rotary_emb_hf.default\) turns from another place"),
    "turned by place": (in_place, r"aten.slice_copy.Tensor\) takes something else from a table"),
    "the position as a number": (
        lambda m: m.b.call("aten.mul.Tensor", m.x, m.b.call("aten._to_copy.default", m.input_pos)),
        r"aten._to_copy.default\) computes with the position",
    ),
    "the number of tokens": (
        lambda m: m.b.call("aten.mul.Tensor", m.x, m.b.call("aten.full.default", [1], m.length)),
        r"aten.full.default\) ",
    ),
    "8 bits of all tokens": (
        lambda m: m.b.call("quantized_decomposed.choose_qparams.tensor", m.x, -128, 127, 1e-6, 1, dims=[(1,), (1,)])[0],
        r"choose_qparams.tensor\) is not known",
    ),
    "a convolution": (
        lambda m: m.b.call(
            "aten.convolution.default",
            m.b.call("aten.permute_copy.default", m.x, [0, 2, 1]),
            m.constant(WIDTH, 1, 3),
            None,
            [1],
            [1],
            [1],
            False,
            [0],
            WIDTH,
        ),
        r"aten.convolution.default\) is not known",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_proven_is_refused_with_the_op(name: str) -> None:
    make, why = REFUSED[name]
    m = Small()
    x = make(m)
    graph = m.graph(x) if len(x.dims) == 3 else m.b.graph(x)
    with pytest.raises(NotRaggedError, match=rf"^op \d+ \(.*{why}"):
        ragged(graph, SIZES)


def test_state_that_is_not_a_cache_is_refused() -> None:
    with pytest.raises(NotRaggedError, match=r"hightide.store.default\) changes state of"):
        ragged(other_state(Small()), SIZES)


def test_other_inputs_and_outputs_are_refused() -> None:
    m = Small()
    y = m.layer(m.x)
    with pytest.raises(NotRaggedError, match="the outputs are not logits"):
        ragged(m.b.graph(y, y), SIZES)
    b = GraphBuilder()
    x = b.call("aten.embedding.default", b.constant(np.zeros((4, 3), np.float32)), b.input((2, 5), "int32"))
    b.input((1,), "int32")
    with pytest.raises(NotRaggedError, match=r"the inputs are \[2, 5\], \[1\], not tokens"):
        ragged(b.graph(x), SIZES)


# ---- at random: what is accepted must be right


def random_step(m: Small, x: Any, rng: np.random.Generator) -> Any:
    """One op on x, whatever it does to the tokens."""
    b, rank, dims = m.b, len(x.dims), x.dims
    dim = int(rng.integers(rank))
    sizes = [m.length if d == MOST_AT_RANDOM and rng.random() < 0.8 else d for d in dims]
    # A constant of all the dims, or of some: along that of the tokens it must be 1.
    some = [d if rng.random() < 0.5 else 1 for d in dims][int(rng.integers(rank)) :]
    reorder = [int(d) for d in rng.permutation(rank)]
    steps: list[Callable[[], Any]] = [
        lambda: b.call("aten.permute_copy.default", x, reorder),
        lambda: b.call("aten.unsqueeze_copy.default", x, dim),
        lambda: b.call("aten.squeeze_copy.dims", x, [dim]),
        lambda: m.view(x, *sizes),
        lambda: m.view(x, *sizes[:-1], 2, -1),
        lambda: m.view(x, *[sizes[d] for d in reorder]),
        lambda: m.view(x, 1, m.length, WIDTH),
        lambda: m.view(x, m.length, -1),
        lambda: b.call("aten._softmax.default", x, dim, False),
        lambda: b.call("aten.add.Tensor", x, b.call("aten.mean.dim", x, [dim], True), 1),
        lambda: b.call("aten.mul.Tensor", x, m.constant(*some)),
        lambda: b.call("aten.add.Tensor", x, b.call("aten.permute_copy.default", x, reorder), 1),
        lambda: b.call("aten.flip.default", x, [dim]),
        lambda: b.call(
            "aten.cat.default",
            list(b.call("aten.split_with_sizes_copy.default", x, [1, dims[dim] - 1], dim))[::-1],
            dim,
        ),
        lambda: b.call("et_vk.rms_norm.default", x, m.constant(dims[-1]), 1e-5),
        lambda: m.linear(x, dims[-1]),
        lambda: b.call("aten.index_select.default", x, dim, b.constant(np.array([0, 0], np.int32))),
        lambda: b.call("aten.select_copy.int", x, dim, -1),
        lambda: b.call("aten.expand_copy.default", x, sizes),
    ]
    return steps[int(rng.integers(len(steps)))]()


MOST_AT_RANDOM = WIDTH  # as many tokens as elements, so that nothing can be told by its size
AT_RANDOM = replace(SIZES, rows=WIDTH)


def random_graph(seed: int) -> Graph:
    rng, m = np.random.default_rng(seed), Small(most=MOST_AT_RANDOM)
    x = m.x
    for _ in range(int(rng.integers(1, 4))):
        x = random_step(m, x, rng)
    if x.dims != (1, MOST_AT_RANDOM, WIDTH):
        x = m.b.call("aten.add.Tensor", m.x, x, 1)
    return m.graph(m.layer(x))


def test_whatever_is_accepted_is_right() -> None:
    outcome: Counter[str] = Counter()
    for seed in range(250):
        try:
            graph = random_graph(seed)
            alone(graph, np.array([1, 2]))  # a program that can take one token at a time
        except HightideError:
            outcome["no program"] += 1
            continue
        try:
            form = ragged(graph, AT_RANDOM)
        except NotRaggedError:
            outcome["refused"] += 1
            continue
        outcome["accepted"] += 1
        assert_same_rows(graph, form, sizes=AT_RANDOM, seed=seed)
    assert min(outcome["accepted"], outcome["refused"]) > 25, outcome
