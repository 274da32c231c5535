"""Attention as torch's exporter takes it apart becomes one op, at any live size, and gives what the parts give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hightide.fuse import fuse
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession

BATCH, HEADS, TOKENS, KEYS, DEPTH = 2, 3, 5, 7, 4
ATTENTION = "hightide.sdpa_rows.default"


def attention(masked: bool, safe: bool = True, used: bool = False) -> Graph:
    """Of q [B, S, H * D], k and v [B, T, H * D], with live B, S and T; `used`: somebody reads the scores."""
    b = GraphBuilder()
    q, k, v = (b.input((BATCH, size, HEADS * DEPTH)) for size in (TOKENS, KEYS, KEYS))
    batch, tokens = (b.call("aten.sym_size.int", q, dim) for dim in (0, 1))
    keys = b.call("aten.sym_size.int", k, 1)
    both = b.call("mul", batch, HEADS)
    apart = [
        b.call("aten.view_copy.default", x, [batch, rows, HEADS, DEPTH])
        for x, rows in ((q, tokens), (k, keys), (v, keys))
    ]
    heads = [b.call("aten.permute_copy.default", x, [0, 2, 1, 3]) for x in apart]
    turned = b.call("aten.permute_copy.default", heads[1], [0, 1, 3, 2])

    def listed(x: object, rows: object, width: object) -> object:
        expanded = b.call("aten.expand_copy.default", x, [batch, HEADS, rows, width])
        return b.call("aten.view_copy.default", expanded, [both, rows, width])

    left = listed(b.call("aten.mul.Scalar", heads[0], 0.5), tokens, DEPTH)
    right = listed(b.call("aten.mul.Scalar", turned, 0.7), DEPTH, keys)
    scores = b.call("aten.view_copy.default", b.call("aten.bmm.default", left, right), [batch, HEADS, tokens, keys])
    mask = b.input((BATCH, 1, TOKENS, KEYS)) if masked else None
    scores = scores if mask is None else b.call("aten.add.Tensor", scores, mask)
    weights = b.call("aten._softmax.default", scores, -1, False)
    if safe:
        seen = b.call(
            "aten.logical_not.default", b.call("aten.eq.Scalar", scores, -math.inf, dtype="bool"), dtype="bool"
        )
        none = b.call("aten.logical_not.default", b.call("aten.any.dim", seen, -1, True, dtype="bool"), dtype="bool")
        weights = b.call("aten.where.self", none, b.call("aten.full_like.default", weights, 0), weights)
    made = b.call("aten.bmm.default", listed(weights, tokens, keys), listed(heads[2], keys, DEPTH))
    out = b.call("aten.view_copy.default", made, [batch, HEADS, tokens, DEPTH])
    back = b.call("aten.permute_copy.default", b.call("aten.permute_copy.default", out, [2, 0, 1, 3]), [1, 0, 2, 3])
    return b.graph(*([back, scores] if used else [back]))


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "plain"])
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "simple"])
def test_it_becomes_one_op_that_gives_the_same(masked: bool, safe: bool) -> None:
    graph = attention(masked, safe)
    fused = fuse(graph)
    assert ATTENTION in [call.name for call in fused.calls]
    assert not {"aten.bmm.default", "aten._softmax.default"} & {call.name for call in fused.calls}
    dynamic = [True] * len(graph.inputs)
    rng = np.random.default_rng(1)
    for batch, tokens, keys in [(BATCH, TOKENS, KEYS), (1, 1, 1), (1, 3, KEYS), (BATCH, TOKENS, 1)]:
        shapes = [(batch, tokens, HEADS * DEPTH), *[(batch, keys, HEADS * DEPTH)] * 2]
        given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        if masked:
            hidden = np.where(rng.random((batch, 1, tokens, keys)) < 0.4, -np.inf, 0).astype(np.float32)
            hidden[:, :, 0] = -np.inf if safe else 0  # a row that sees nothing
            hidden[:, :, 1:, 0] = 0
            given.append(hidden)
        want, got = (CpuSession(g, dynamic).run(given)[0] for g in (graph, fused))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_scores_that_somebody_reads_stay() -> None:
    assert ATTENTION not in [call.name for call in fuse(attention(masked=False, used=True)).calls]


def test_permutes_in_a_row_are_one_that_attention_takes() -> None:
    calls = [call.name for call in fuse(attention(masked=False)).calls]
    assert "aten.permute_copy.default" not in calls  # of q, k, v and the result
