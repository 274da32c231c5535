"""Passes: the fused graph gives what the graph gives, with fewer ops, and touches nothing that others need."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from llamas import small_llama
from schedules import error_of_range, main_method

from hightide import InputError
from hightide.fuse import PASSES, fuse
from hightide.fuse.rewriter import Rewriter
from hightide.graph.blob import Blob, Joined, join
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Planner
from hightide.runtime.cpu_session import CpuSession
from hightide.tools.opened_file import Part, open_file

TESTS = Path(__file__).parents[1]
PROGRAMS = sorted(TESTS.glob("conformance/*.pte"))
MODELS = sorted(TESTS.glob("models/*.gguf"))


def names(graph: Graph) -> Counter[str]:
    return Counter(call.name for call in graph.calls)


def calls_of(graph: Graph) -> list[tuple[str, dict[str, int], int]]:
    return [(call.name, dict(call.args), call.out) for call in graph.calls]


def results(graph: Graph, calls: list[list[np.ndarray]]) -> list[np.ndarray]:
    """What the calls give, one after the other in float64 on NumPy, and the state that they leave."""
    session = CpuSession(graph, dtype="float64")
    return [*(array for given in calls for array in session.run(given)), *session.read_state()]


def assert_equal(wanted: list[np.ndarray], got: list[np.ndarray], limit: float = 1e-9) -> None:
    assert all(error_of_range(b, a) <= limit for a, b in zip(wanted, got, strict=True))


def assert_same(graph: Graph, fused: Graph, calls: list[list[np.ndarray]], limit: float = 1e-9) -> None:
    assert_equal(results(graph, calls), results(fused, calls), limit)


def schedule(part: Part) -> list[list[np.ndarray]]:
    most = part.symbols
    levels = [{}, {name: 1 for name in most if name != "pos"}, {name: min(3, n) for name, n in most.items()}]
    if "pos" in most:
        levels += [{"S": 2, "pos": 5}, {"S": 1, "pos": 7}]
    calls = []
    for seed, at in enumerate(levels):
        with suppress(InputError):  # not a level of this program
            calls.append(part.inputs_at({n: v for n, v in at.items() if n in most}, seed))
    assert len(calls) > ("pos" in most) + (len(most) == 1), "too few levels to tell a difference"
    return calls


LARGER = ("conformance/qwen3.pte", "models/gemma3.gguf")
# Their graphs differ from a sister's in size or in constants.
SISTERS = ("gemma3_27b", "gemma3_global", "gemma3_scaled", "llama_llama3", "phi3_longrope", "qwen2_yarn")
SISTERS += ("command_r_plus", "falcon_40b", "gptneox_sequential", "olmo3", "stablelm_12b")
FILES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.stem in SISTERS else [])
    for path in (*PROGRAMS, *MODELS)
]


@pytest.mark.parametrize("path", FILES)
def test_a_fused_graph_gives_the_same(path: Path) -> None:
    for part in open_file(path, method=main_method(path.stem), device="cpu").parts:
        fused = fuse(part.graph)
        assert len(fused.calls) <= len(part.graph.calls)
        # 8-bit activations: a value may fall on the other side of a rounding. Folded constants are rounded to float32.
        folded = calls_of(fuse(part.graph, ["constants"])) != calls_of(fuse(part.graph, []))
        assert_same(part.graph, fused, schedule(part), 2e-2 if "8da4w" in path.name else 1e-6 if folded else 1e-9)


@pytest.mark.parametrize(
    "file", ["conformance/llama_fp32.pte", *(pytest.param(file, marks=pytest.mark.slow) for file in LARGER)]
)
def test_each_pass_alone_and_all_but_it_give_the_same(file: str) -> None:
    (part,) = open_file(TESTS / file, device="cpu").parts
    calls = schedule(part)
    wanted = results(part.graph, calls)
    for name in PASSES:
        for only in ([name], [other for other in PASSES if other != name]):
            assert_equal(wanted, results(fuse(part.graph, only), calls))


def test_a_layer_of_a_llama_is_four_linears_and_attention() -> None:
    graph = small_llama(layers=3)
    fused = names(fuse(graph))
    per_layer = ("hightide.linear_q4.default", "hightide.rope_attend.default")
    assert [fused[name] for name in per_layer] == [3 * 4 + 1, 3]  # and the head
    assert not fused["et_vk.rms_norm.default"]
    assert not fused["aten.add.Tensor"] and not fused["aten.mul.Tensor"] and not fused["aten.sigmoid.default"]


def test_passes_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_llama()
    assert calls_of(fuse(graph, ())) == calls_of(graph)
    assert "hightide.rope_attend.default" not in names(fuse(graph, ["gated", "residual"]))
    monkeypatch.setenv("HIGHTIDE_PASSES", "none")
    assert calls_of(fuse(graph)) == calls_of(graph)
    monkeypatch.setenv("HIGHTIDE_PASSES", "gated,nonsense")
    with pytest.raises(InputError, match="there is no pass 'nonsense'; there are constants, shared_weights, "):
        fuse(graph)


def linear_graph(builder: GraphBuilder, rows: int = 8) -> tuple:  # type: ignore[type-arg]
    x = builder.input((1, 5, 16))
    weight = builder.constant(np.random.default_rng(rows).normal(size=(rows, 16)).astype(np.float32))
    return x, weight, builder.call("aten.linear.default", x, weight, None)


def test_what_somebody_else_needs_stays() -> None:
    """A linear whose plain result is an output, or is read twice, keeps its own call."""
    b = GraphBuilder()
    x, _, y = linear_graph(b, 16)
    total = b.call("aten.add.Tensor", x, y, 1)
    assert names(fuse(b.graph(total)))["aten.add.Tensor"] == 0
    for graph in (b.graph(total, y), b.graph(total, b.call("aten.neg.default", y))):
        fused = fuse(graph)
        assert names(fused)["aten.add.Tensor"] == 1
        assert_same(graph, fused, [[np.ones((1, 3, 16), np.float32)]])


def test_a_sum_of_other_dims_or_another_factor_is_not_a_residual() -> None:
    b = GraphBuilder()
    _, _, y = linear_graph(b, 16)
    wide = b.call("aten.add.Tensor", b.input((3, 5, 16)), y, 1)
    half = b.call("aten.add.Tensor", y, b.input((1, 5, 16)), 0.5)
    assert names(fuse(b.graph(wide, half)))["aten.add.Tensor"] == 2


@pytest.mark.parametrize("count", [1, 4])
def test_the_last_token_is_selected_before_norm_and_head(count: int) -> None:
    b = GraphBuilder()
    tokens = b.input((1, 5), "int32")
    length = b.call("sym_size.int", tokens, 1)
    rng = np.random.default_rng(0)
    table, head, weight = (b.constant(rng.normal(size=d).astype(np.float32)) for d in ((9, 16), (11, 16), (16,)))
    x = b.call("aten.embedding.default", table, tokens)
    logits = b.call("aten.linear.default", b.call("et_vk.rms_norm.default", x, weight, 1e-5), head, None)
    logits = b.call("aten.view_copy.default", logits, [1, length, 11])
    if count == 1:
        out = b.call("aten.select_copy.int", logits, 1, -1)
    else:
        out = b.call("aten.slice_copy.Tensor", logits, 1, -count, None, 1)
    graph = b.graph(out)
    fused = fuse(graph)
    order = [call.name for call in fused.calls if call.name != "sym_size.int"]
    assert order[1] in ("aten.select_copy.int", "aten.slice_copy.Tensor"), order
    assert_same(graph, fused, [[np.arange(n, dtype=np.int32)[None]] for n in (5, 1, 3)])


def test_a_select_along_the_columns_stays_after_the_head() -> None:
    b = GraphBuilder()
    _, _, y = linear_graph(b)
    graph = b.graph(b.call("aten.select_copy.int", y, -1, 2))
    assert [call.name for call in fuse(graph).calls] == ["aten.linear.default", "aten.select_copy.int"]


def test_reads_of_memory_that_changes_are_not_taken_for_the_same() -> None:
    b = GraphBuilder()
    x, cache = b.input((1, 2, 1, 4)), b.zeros((1, 8, 1, 4))
    before = b.call("aten.neg.default", cache)
    b.call("llama.update_cache.default", x, cache, 0)
    after = b.call("aten.neg.default", cache)
    assert names(fuse(b.graph(before, b.call("aten.mul.Tensor", after, after))))["aten.neg.default"] == 2


def test_joined_blobs_read_as_one() -> None:
    data = bytes(range(60))
    parts = (Blob(data, 0, 24), Blob(data, 24, 36))
    assert bytes(join(parts).view()) == data
    side_by_side = Joined(parts, 6, (3, 5))  # rows of 4 and of 6 bytes, the last of each left out
    rows = [data[4 * n : 4 * n + 3] + data[24 + 6 * n : 24 + 6 * n + 5] for n in range(6)]
    assert bytes(side_by_side.view()) == b"".join(rows) and side_by_side.length == 48
    for start in range(48):
        for length in {0, 1, min(9, 48 - start), 48 - start}:
            assert bytes(side_by_side.region(start, length)) == b"".join(rows)[start : start + length]


# ---- what is the same at the max and not at every level, and memory that changes


def matrix(b: GraphBuilder, rows: int = 16, columns: int = 16) -> object:
    return b.constant(np.random.default_rng(rows).normal(size=(rows, columns)).astype(np.float32))


def ones(*dims: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(dims)), dtype=np.float32).reshape(dims)


@pytest.mark.parametrize("last", ["aten.clone.default", "aten.unsqueeze_copy.default"])
def test_a_view_whose_rank_follows_its_source_stays_behind_a_linear(last: str) -> None:
    b = GraphBuilder()
    tokens = b.input((1, 6), "int32")
    n = b.call("sym_size.int", tokens, 1)
    x = b.call("aten.embedding.default", matrix(b, 9), tokens)
    y = b.call("aten.linear.default", b.call("aten.view_copy.default", x, [n, 16]), matrix(b), None)
    more = () if "clone" in last else (0,)
    graph = b.graph(b.call("aten.mul.Scalar", b.call(last, y, *more), 3.0))
    fused = fuse(graph)
    Planner(fused).plan_max(MaxElements())
    assert_same(graph, fused, [[np.arange(n, dtype=np.int32)[None]] for n in (6, 1, 4)])


def test_a_view_that_swaps_live_dims_of_the_same_max_is_not_plain() -> None:
    b = GraphBuilder()
    x = b.input((4, 4, 16))
    s, t = (b.call("sym_size.int", x, d) for d in (0, 1))
    swapped = b.call("aten.view_copy.default", b.call("aten.linear.default", x, matrix(b), None), [t, s, 16])
    other = b.call("aten.view_copy.default", b.call("aten.neg.default", x), [t, s, 16])
    graph = b.graph(b.call("aten.add.Tensor", other, swapped, 1))
    assert_same(graph, fuse(graph), [[ones(2, 3, 16)], [ones(4, 1, 16)]])


def test_a_sum_that_may_broadcast_is_not_a_residual() -> None:
    b = GraphBuilder()
    x, other = b.input((4, 16)), b.input((4, 16))
    graph = b.graph(b.call("aten.add.Tensor", other, b.call("aten.linear.default", x, matrix(b), None), 1))
    assert_same(graph, fuse(graph), [[ones(1, 16), ones(3, 16)], [ones(3, 16), ones(1, 16)]])


def test_a_sum_of_a_value_with_itself_is_fused_only_where_it_can_be() -> None:
    b = GraphBuilder()
    x = b.input((4, 16))
    y = b.call("aten.linear.default", x, matrix(b), None)
    n = b.call("et_vk.rms_norm.default", x, b.constant(ones(16)), 1e-5)
    total = b.call("aten.add.Tensor", n, n, 1)
    graph = b.graph(
        b.call("aten.add.Tensor", y, y, 1), b.call("et_vk.rms_norm.default", total, b.constant(ones(16)), 1e-5)
    )
    assert_same(graph, fuse(graph), [[ones(3, 16)]])


def test_a_sum_that_is_a_norms_weight_is_not_normed() -> None:
    b = GraphBuilder()
    a, c, x = b.input((16,)), b.input((16,)), b.input((4, 16))
    weight = b.call("aten.add.Tensor", a, c, 1)
    graph = b.graph(b.call("et_vk.rms_norm.default", x, weight, 1e-5))
    assert_same(graph, fuse(graph), [[ones(16), ones(16), ones(3, 16)]])


@pytest.mark.parametrize("form", ["residual", "add_norm", "select", "view"])
def test_what_was_read_before_a_write_is_not_read_after_it(form: str) -> None:
    b = GraphBuilder()
    x, cache = b.input((1, 2, 1, 16)), b.constant(ones(1, 8, 1, 16))
    if form == "residual":
        read = b.call("aten.linear.default", cache, matrix(b), None)
    elif form == "add_norm":
        read = b.call("aten.add.Tensor", cache, b.call("aten.neg.default", b.constant(ones(1, 8, 1, 16))), 1)
    elif form == "select":
        read = b.call("et_vk.rms_norm.default", cache, b.constant(ones(16)), 1e-5)
    else:
        read = b.call("aten.view_copy.default", cache, [8, 16])
    b.call("llama.update_cache.default", x, cache, 0)
    if form == "residual":
        out = b.call("aten.add.Tensor", b.constant(ones(1, 8, 1, 16)), read, 1)
    elif form == "add_norm":
        out = b.call("et_vk.rms_norm.default", read, b.constant(ones(16)), 1e-5)
    elif form == "select":
        out = b.call("aten.select_copy.int", read, 1, 0)
    else:
        y = b.call("aten.linear.default", read, matrix(b), None)
        out = b.call("aten.view_copy.default", y, [1, 8, 1, 16])
    graph = b.graph(out)
    assert_same(graph, fuse(graph), [[ones(1, 2, 1, 16)], [-ones(1, 2, 1, 16)]])


@pytest.mark.parametrize("form", ["one", "two linears", "an output", "a weight"])
def test_a_norm_for_one_linear_is_left_to_it(form: str) -> None:
    b = GraphBuilder()
    x, factors = b.input((4, 16)), b.constant(np.linspace(0.5, 2, 16, dtype=np.float32))
    normed = b.call("et_vk.rms_norm.default", x, factors, 0.1)
    if form == "a weight":
        out = [b.call("aten.linear.default", x, normed, None)]
    else:
        out = [b.call("aten.linear.default", normed, matrix(b), None)]
    out += [b.call("aten.linear.default", normed, matrix(b, 8), None)] if form == "two linears" else []
    out += [normed] if form == "an output" else []
    graph = b.graph(*out)
    fused = fuse(graph)
    assert names(fused)["et_vk.rms_norm.default"] == (0 if form == "one" else 1)
    given = np.random.default_rng(2).normal(size=(4, 16)).astype(np.float32)
    assert_same(graph, fused, [[given], [given[:1] * 3]] if form != "a weight" else [[given]])


def test_weights_that_change_are_not_joined() -> None:
    b = GraphBuilder()
    x, gate, up = b.input((4, 16)), matrix(b, 8), matrix(b, 8)
    y = [b.call("aten.linear.default", x, w, None) for w in (gate, up)]
    out = b.call("aten.mul.Tensor", b.call("aten.silu.default", y[0]), y[1])
    lying = b.call("aten.view_copy.default", gate, [1, 8, 1, 16])
    b.call("llama.update_cache.default", b.constant(ones(1, 1, 1, 16)), lying, 0)
    graph = b.graph(out)
    assert_same(graph, fuse(graph), [[ones(4, 16)], [ones(3, 16)]])


def test_results_of_other_types_are_not_the_same() -> None:
    b = GraphBuilder()
    x = b.input((4, 16))
    wide, narrow = (b.call("aten.mul.Scalar", x, 3.0, dtype=dtype) for dtype in ("float32", "int32"))
    graph = b.graph(b.call("aten.add.Tensor", b.call("aten.neg.default", wide), narrow, 1))
    assert names(fuse(graph))["aten.mul.Scalar"] == 2


def test_rows_of_another_length_are_not_a_linears_rows() -> None:
    b = GraphBuilder()
    flat = b.call("aten.view_copy.default", b.input((4, 16)), [-1, 16])
    y = b.call("aten.linear.default", flat, matrix(b), None)
    graph = b.graph(b.call("aten.neg.default", b.call("aten.view_copy.default", y, [-1, 8])))
    assert_same(graph, fuse(graph), [[ones(4, 8)], [ones(2, 16)], [ones(3, 16)]])


def test_gates_that_are_viewed_with_live_dims_swapped_are_not_one_linear() -> None:
    b = GraphBuilder()
    x = b.input((4, 4, 16))
    s, t = (b.call("sym_size.int", x, d) for d in (0, 1))
    sides = [b.call("aten.linear.default", x, matrix(b, 8), None) for _ in range(2)]
    gate, up = (b.call("aten.view_copy.default", side, [t, s, 8]) for side in sides)
    graph = b.graph(b.call("aten.mul.Tensor", b.call("aten.silu.default", gate), up))
    assert_same(graph, fuse(graph), [[ones(2, 3, 16)], [ones(4, 1, 16)]])


def test_a_linear_with_a_residual_is_not_swapped_with_a_select() -> None:
    b = GraphBuilder()
    x = b.call("et_vk.rms_norm.default", b.input((4, 16)), b.constant(ones(16)), 1e-5)
    y = b.call("aten.add.Tensor", x, b.call("aten.linear.default", x, matrix(b), None), 1)
    graph = b.graph(b.call("aten.select_copy.int", y, 0, -1))
    rewriter = Rewriter(graph)
    for name in ("residual", "select_early"):
        PASSES[name](rewriter)
    fused = rewriter.finish()
    assert names(fused)["hightide.linear.default"] == 1 and fused.calls[-1].name == "aten.select_copy.int"
    assert_same(graph, fused, [[ones(3, 16)]])


@pytest.mark.parametrize("turned_from", ["the position", "0"])
def test_heads_that_are_turned_from_another_position_are_not_turned_into_the_cache(turned_from: str) -> None:
    b = GraphBuilder()
    tokens, input_pos = b.input((1, 4), "int32"), b.input((1,), "int32")
    length = b.call("sym_size.int", tokens, 1)
    position = b.call("et_vk.select_as_symint.default", input_pos, 0, -1)
    x = b.call("aten.embedding.default", matrix(b, 9), tokens)
    heads = [
        b.call("aten.view_copy.default", b.call("aten.linear.default", x, matrix(b, 8), None), [1, length, 2, 4])
        for _ in range(3)
    ]
    start = position if turned_from == "the position" else 0
    tables = [b.constant(ones(8, 4)), b.constant(-ones(8, 4))]
    q, k = b.call("et_vk.apply_rotary_emb_hf.default", heads[0], heads[1], *tables, start)
    caches = [b.zeros((1, 8, 2, 4)) for _ in range(2)]
    options = (1, None, 0.0, True, None)
    graph = b.graph(b.call("sdpa_with_kv_cache.default", q, k, heads[2], *caches, position, *options))
    fused = fuse(graph)
    assert names(fused)["hightide.rope_attend.default"] == (turned_from == "the position")
    calls = [[np.arange(n, dtype=np.int32)[None], np.array([at], np.int32)] for n, at in ((4, 0), (2, 4), (1, 6))]
    assert_same(graph, fused, calls)


def test_what_is_known_of_live_dims() -> None:
    b = GraphBuilder()
    x, y = b.input((4, 16)), b.input((4, 16))
    weight = b.constant(ones(16))
    normed = b.call("et_vk.rms_norm.default", x, weight, 1e-5)
    total = b.call("aten.add.Tensor", normed, y, 1)
    rows = b.call("sym_size.int", normed, 0)
    same = b.call("aten.view_copy.default", normed, [1, rows, 16])
    inferred = b.call("aten.view_copy.default", normed, [-1, 16])
    halves = b.call("aten.view_copy.default", normed, [-1, 8])
    r = Rewriter(b.graph(b.call("aten.neg.default", total), same, inferred, halves))
    s, width = r.live_dims(x.id)
    assert width == 16, "the norm takes no other rows"
    assert r.live_dims(same.id) == (1, s, 16) and r.live_dims(inferred.id) == (s, 16)
    assert r.live_dims(halves.id)[0] not in (s, 4) and r.live_dims(halves.id)[1] == 8
    assert r.live_dims(total.id)[0] not in (s, r.live_dims(y.id)[0]), "either may be 1"


@pytest.mark.parametrize("form", ["square", "power", "fourth power", "other dim", "wide weight", "used elsewhere"])
def test_a_norm_that_was_taken_apart(form: str) -> None:
    b = GraphBuilder()
    x = b.call("aten.linear.default", b.input((1, 9, 8)), b.constant(np.eye(16, 8, dtype=np.float32)), None)
    power = {"power": 2, "fourth power": 4}.get(form)
    square = b.call("aten.pow.Tensor_Scalar", x, power) if power else b.call("aten.mul.Tensor", x, x)
    mean = b.call("aten.mean.dim", square, [1 if form == "other dim" else -1], True, None)
    root = b.call("aten.rsqrt.default", b.call("aten.add.Tensor", mean, b.constant(np.float32(1e-3)), 1))
    normed = b.call("aten.mul.Tensor", x, root)
    weight = b.constant(np.linspace(1, 2, 16, dtype=np.float32).reshape((1, 16) if form == "wide weight" else 16))
    outputs = [b.call("aten.mul.Tensor", normed, weight), *([root] if form == "used elsewhere" else [])]
    graph = b.graph(*outputs)
    fused = fuse(graph)
    assert names(fused)["et_vk.rms_norm.default"] == (form in ("square", "power"))
    given = [np.random.default_rng(0).standard_normal((1, 4, 8)).astype(np.float32)]
    for got, want in zip(CpuSession(fused).run(given), CpuSession(graph).run(given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
