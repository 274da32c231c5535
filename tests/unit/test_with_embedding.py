"""A Llama taken apart at its embedding and joined again, with rows of an input among its embeddings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from schedules import PROGRAMS

from hightide import UnsupportedError
from hightide.fuse.ragged import MEDIA, RAGGED_INPUTS, NotRaggedError, RaggedSizes, ragged
from hightide.fuse.rewriter import Rewriter
from hightide.fuse.with_embedding import with_embedding
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import TensorValue
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession

SIZES = RaggedSizes(rows=8, wanted=4, singles=4, tiles=5, page=4, pages=8, table=8, media=(6, 64))


def part(graph: Graph, calls: list[OpCall], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Graph:
    numbered = tuple(replace(call, index=n) for n, call in enumerate(calls))
    return Rewriter(Graph(graph.values, numbered, inputs, outputs)).finish()


def taken_apart(name: str) -> tuple[Graph, Graph, Graph]:
    """(whole, token_embedding, text_decoder)"""
    whole = load(PROGRAMS / f"{name}.pte", device="cpu").single_graph("forward")
    assert whole is not None
    (at,) = [n for n, call in enumerate(whole.calls) if "embedding" in call.name]
    tokens, position = whole.inputs
    made = whole.calls[at].out
    behind = [  # what asks how many tokens there are asks the embeddings
        replace(call, args={name: made if id == tokens else id for name, id in call.args.items()})
        for n, call in enumerate(whole.calls)
        if n != at
    ]
    first = part(whole, list(whole.calls[: at + 1]), (tokens,), (made,))
    return whole, first, part(whole, behind, (made, position), whole.outputs)


@pytest.mark.parametrize("name", ["llama_fp32", "llama_gqa"])
def test_joined_it_gives_what_it_gave(name: str) -> None:
    whole, embedding, decoder = taken_apart(name)
    joined = with_embedding(embedding, decoder, 6)
    once = CpuSession(whole, [True, False], ["tokens", "position"])
    again = CpuSession(joined, [True, False, False], ["tokens", "position", "media"])
    logits = whole.values[whole.outputs[0]]
    assert isinstance(logits, TensorValue)
    rng, vocabulary = np.random.default_rng(0), logits.dims[-1]
    table = CpuSession(embedding, [True], ["tokens"])
    media = table.run([np.array([[5, 6, 7, 8, 9, 9]])])[0][0]
    for at, count in [(0, 7), (7, 1), (8, 3)]:
        tokens = rng.integers(0, vocabulary, (1, count))
        given = tokens.copy()
        given[0, :2], tokens[0, :2] = [vocabulary + 3, vocabulary][:count], [8, 5][:count]
        want = once.run([tokens, np.array([at])])[0]
        np.testing.assert_array_equal(again.run([given, np.array([at]), media])[0], want)


def test_its_ragged_form_has_the_rows_as_its_last_input() -> None:
    _, embedding, decoder = taken_apart("llama_gqa")
    made = ragged(with_embedding(embedding, decoder, 6), SIZES)
    assert len(made.inputs) == len(SIZES.inputs) and SIZES.inputs == (*RAGGED_INPUTS, MEDIA)
    media = made.values[made.inputs[-1]]
    assert isinstance(media, TensorValue) and media.dims == (6, 64)


def test_an_input_that_is_something_else_is_not_taken_for_rows() -> None:
    _, embedding, decoder = taken_apart("llama_gqa")
    joined = with_embedding(embedding, decoder, 6)
    calls = [
        replace(call, args={**call.args, "media": call.args["x"], "x": call.args["media"]})
        if call.name == "hightide.media_rows.default"
        else call
        for call in joined.calls
    ]
    with pytest.raises(NotRaggedError, match="is not rows of images"):
        ragged(replace(joined, calls=tuple(calls)), SIZES)


def test_parts_of_different_models_are_refused() -> None:
    _, embedding, _ = taken_apart("llama_fp32")
    _, _, decoder = taken_apart("llama_gqa")
    with pytest.raises(
        UnsupportedError, match=r"gives float32\[1, 39, 36\] and text_decoder takes float32\[1, 47, 64\]"
    ):
        with_embedding(embedding, decoder, 6)
