"""Work on constants is done once: what is folded, what is not, and that the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hightide.errors import HightideError
from hightide.fuse import PASSES, fuse
from hightide.fuse.constants import SMALL
from hightide.graph.blob import Blob, Computed
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Planner
from hightide.runtime.cpu_session import CpuSession

WIDTH = 16


def folded(graph: Graph) -> Graph:
    return fuse(graph, ["constants"])


def names(graph: Graph) -> list[str]:
    return [call.name for call in graph.calls]


def weight(b: GraphBuilder, *dims: int, seed: int = 0) -> Any:
    return b.constant(np.random.default_rng(seed).normal(size=dims or (WIDTH,)).astype(np.float32))


def normed(b: GraphBuilder, by: Any) -> Graph:
    return b.graph(b.call("et_vk.rms_norm.default", b.input((5, WIDTH)), by, 1e-5))


def same_bits(graph: Graph, *inputs: np.ndarray) -> bool:
    """On NumPy in float32, which computes as the pass does."""
    wanted, got = CpuSession(graph).run(inputs), CpuSession(folded(graph)).run(inputs)
    return all(a.tobytes() == b.tobytes() for a, b in zip(wanted, got, strict=True))


X = np.random.default_rng(7).normal(size=(3, WIDTH)).astype(np.float32)


def test_a_norm_of_one_plus_a_weight_is_a_norm() -> None:
    b = GraphBuilder()
    one = b.call("et_vk.prepack.default", b.constant(np.ones(1, np.float32)))
    graph = normed(b, b.call("aten.add.Tensor", b.call("et_vk.prepack.default", weight(b)), one, 1))
    assert names(folded(graph)) == ["et_vk.rms_norm.default"]
    assert len(Planner(folded(graph)).plan_max(MaxElements()).steps) == 1
    assert same_bits(graph, X)


def test_chains_views_casts_and_several_outputs_are_folded() -> None:
    b = GraphBuilder()
    table = b.constant(np.arange(2 * WIDTH).reshape(2, WIDTH))  # int64
    floats = b.call("aten._to_copy.default", table, 6, dtype="float32")
    first, second = b.call("aten.split_with_sizes_copy.default", floats, [1, 1], 0)
    total = b.call("aten.mul.Tensor", b.call("aten.add.Tensor", first, second, 1), 0.1)
    graph = normed(b, b.call("aten.view_copy.default", total, [WIDTH]))
    assert names(folded(graph)) == ["aten.view_copy.default", "et_vk.rms_norm.default"]
    assert same_bits(graph, X)


def test_integers_wrap_as_on_a_gpu() -> None:
    b = GraphBuilder()
    large = b.constant(np.full(WIDTH, 2**30, np.int64))
    doubled = b.call("aten.add.Tensor", large, large, 1, dtype="int64")
    made = b.call("aten._to_copy.default", doubled, 6, dtype="float32")
    graph = folded(b.graph(b.call("aten.add.Tensor", b.input((5, WIDTH)), made, 1)))
    assert names(graph) == ["aten.add.Tensor"]
    assert (CpuSession(graph).run([np.zeros((1, WIDTH), np.float32)])[0] == -(2.0**31)).all()


def test_halves_keep_their_full_value_where_there_are_none() -> None:
    b = GraphBuilder()
    half = b.constant(np.full(WIDTH, 0.1, np.float16))
    made = b.call("aten.mul.Tensor", half, half, dtype="float16")
    value = next(v for v in folded(normed(b, made)).values if v.id == made.id)
    assert isinstance(value, TensorValue) and (value.dtype, value.stored_dtype) == ("float16", "float32")
    assert isinstance(value.constant, Computed)
    kept = np.frombuffer(value.constant.view(), np.float32)
    assert (kept == np.float32(np.float16(0.1)) ** 2).all() and len(kept) == WIDTH


def test_what_changes_or_depends_on_a_call_is_not_folded() -> None:
    b = GraphBuilder()
    cache, x = b.zeros((1, 8, 1, WIDTH)), b.input((1, 2, 1, WIDTH))
    read = b.call("aten.neg.default", cache)
    b.call("llama.update_cache.default", x, cache, 0)
    length = b.call("sym_size.int", x, 1)
    live = b.call("aten.full.default", [length, WIDTH], 2.0)
    output = b.call("aten.neg.default", weight(b))  # the caller gets it: a call makes it
    graph = b.graph(b.call("aten.neg.default", read), b.call("aten.neg.default", live), output)
    assert names(folded(graph)) == names(graph)


@pytest.mark.parametrize(("rows", "made"), [(SMALL // 4 // WIDTH, 1), (SMALL // 4 // WIDTH + 1, 2)])
def test_what_would_take_more_memory_is_not_folded(rows: int, made: int) -> None:
    b = GraphBuilder()
    wide = b.call("aten.expand_copy.default", weight(b, 1, WIDTH), [rows, WIDTH])
    graph = b.graph(b.call("aten.add.Tensor", b.input((rows, WIDTH)), wide, 1))
    assert len(folded(graph).calls) == made


def test_what_is_as_large_as_what_it_replaces_is_folded() -> None:
    b = GraphBuilder()
    rows = SMALL // 4 // WIDTH + 1
    turned = b.call("aten.permute_copy.default", weight(b, WIDTH, rows), [1, 0])
    graph = b.graph(b.call("aten.linear.default", b.input((5, WIDTH)), turned, None))
    assert names(folded(graph)) == ["aten.linear.default"] and same_bits(graph, X)


def test_a_call_that_no_plan_takes_is_left_for_the_planner_to_refuse() -> None:
    b = GraphBuilder()
    wrong = b.call("aten.add.Tensor", weight(b), weight(b), 1, dims=[(WIDTH - 1,)])
    graph = folded(b.graph(b.call("aten.neg.default", wrong)))
    assert names(graph) == ["aten.add.Tensor", "aten.neg.default"]
    with pytest.raises(HightideError, match=r"op 0 \(aten.add.Tensor\): the output would be \[16\]"):
        Planner(graph).plan_max(MaxElements())


def test_computed_bytes_are_made_when_read_and_kept_until_the_end_was_read() -> None:
    made: list[int] = []

    def compute() -> bytes:
        made.append(1)
        return b"abcdef"

    blob = Computed(6, (Blob(b"x", 0, 1),), compute)
    assert made == [] and bytes(blob.region(1, 3)) == b"bcd" and bytes(blob.region(4, 2)) == b"ef" and len(made) == 1
    assert bytes(blob.view()) == b"abcdef" and len(made) == 2


def test_joined_linears_may_have_computed_weights() -> None:
    b = GraphBuilder()
    x = b.input((5, WIDTH))
    gate, up = (b.call("aten.neg.default", weight(b, 8, WIDTH, seed=n)) for n in range(2))
    sides = [b.call("aten.linear.default", x, w, None) for w in (gate, up)]
    graph = b.graph(b.call("aten.mul.Tensor", b.call("aten.silu.default", sides[0]), sides[1]))
    assert names(fuse(graph)) == ["hightide.linear.default"]
    assert np.allclose(CpuSession(fuse(graph)).run([X])[0], CpuSession(graph).run([X])[0], atol=1e-6)


def test_the_pass_can_be_left_out() -> None:
    b = GraphBuilder()
    graph = normed(b, b.call("aten.neg.default", weight(b)))
    assert len(fuse(graph, [name for name in PASSES if name != "constants"]).calls) == 2
