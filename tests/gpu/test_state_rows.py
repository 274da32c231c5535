"""Rows of state copied, read and written; outputs fed on whole; steps without rows of some kind; levels named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from llamas import CONTEXT, INPUTS, call, llama_session, small_llama

from hightide.errors import HightideError, InputError
from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.ops.pages.work_lists import SequenceRows, ragged
from hightide.runtime.build import SessionOptions, build_session
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.runtime.session import Fed


@pytest.fixture(params=["gpu", "halves", "cpu"])
def session(request: pytest.FixtureRequest, device: Device) -> Iterator[Any]:
    if request.param == "cpu":
        made: Any = CpuSession(small_llama(), **INPUTS)
    elif request.param == "halves" and not device.traits.f16:
        pytest.skip("for adapters with 16-bit floats")
    else:
        made = llama_session(device, half_caches=request.param == "halves")
    with made:
        yield made


def same(got: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_rows_are_copied_one_after_the_other(session: Any) -> None:
    session.run(call(24, 0))
    expected = session.read_state()
    copies = [(0, 30, 5), (30, 40, 5), (2, 4, 8), (7, 7, 2), (1, 60, 0)]
    for source, target, count in copies:
        for array in expected:
            array[:, target : target + count] = array[:, source : source + count].copy()
    session.copy_rows(copies)
    assert same(session.read_state(), expected)
    session.copy_rows([])
    assert same(session.read_rows(28, 20), [array[:, 28:48] for array in expected])
    assert [array.shape[1] for array in session.read_rows(5, 0)] == [0] * len(expected)


def test_rows_come_back_where_they_are_put(session: Any) -> None:
    session.run(call(24, 0))
    kept, whole = session.snapshot(), session.read_state()
    rows = session.read_rows(3, 4)
    session.write_rows(70, rows)
    assert same(session.read_rows(70, 4), rows) and same(session.read_rows(0, 24), [a[:, :24] for a in whole])
    session.write_rows(0, [array.astype(np.float32) for array in rows])  # whatever it is held as
    assert same(session.read_rows(0, 4), rows)
    session.restore(kept)
    assert same(session.read_state(), whole)


def test_a_sequence_goes_on_from_copied_rows(session: Any) -> None:
    """A run under way is waited for by nobody, and still seen."""
    whole = session.run(call(9, 0))
    session.reset()
    ticket = session.launch(call(9, 0))
    session.copy_rows([(0, 40, 9)])
    session.write_rows(0, [np.full_like(array, np.nan) for array in session.read_rows(0, 9)])
    session.copy_rows([(40, 0, 9)])
    assert same(session.collect(ticket), whole)
    expected = session.run(call(1, 9))
    session.reset()
    session.run(call(9, 0))
    assert same(session.run(call(1, 9)), expected)


@pytest.mark.parametrize("copy", [(-1, 0, 1), (0, -1, 1), (0, 0, -1), (CONTEXT, 0, 1), (0, CONTEXT - 1, 2)])
def test_rows_outside_are_refused(session: Any, copy: tuple[int, int, int]) -> None:
    before = session.read_state()
    with pytest.raises(InputError, match="outside the 80 of the state"):
        session.copy_rows([(0, 1, 1), copy])
    with pytest.raises(InputError, match="outside"):
        session.read_rows(copy[0] or CONTEXT, max(1, copy[2]))
    with pytest.raises(InputError, match="outside"):
        session.write_rows(CONTEXT, session.read_rows(0, 1))
    with pytest.raises(InputError, match="do not go into"):
        session.write_rows(0, [array[..., 1:] for array in session.read_rows(0, 1)])
    assert same(session.read_state(), before)


def test_copies_make_nothing_in_a_steady_state(device: Device) -> None:
    with llama_session(device) as session:
        session.copy_rows([(0, 8, 8), (1, 30, 2)])
        created = device.created
        session.copy_rows([(0, 8, 8), (1, 30, 2), (3, 4, 1)])
        assert device.created == created


# ---- outputs fed on


def doubling(size: int = 6) -> Graph:
    b = GraphBuilder()
    x = b.input((size,), "int32")
    return b.graph(b.call("aten.add.Tensor", x, x, dtype="int32"))


@pytest.mark.parametrize("on_gpu", [True, False], ids=["gpu", "cpu"])
def test_outputs_are_fed_on_whole(device: Device, on_gpu: bool) -> None:
    session: Any = GpuSession(doubling(), device) if on_gpu else CpuSession(doubling())
    (first,) = session.collect(session.launch([np.arange(1, 5, dtype=np.int32)], feed={0: 0}))
    assert first.tolist() == [2, 4, 6, 8]
    (again,) = session.collect(session.launch([Fed((4,))], feed={0: 0}))
    assert again.tolist() == [4, 8, 12, 16]
    (fewer,) = session.collect(session.launch([Fed((3,))], feed={0: 0}))
    assert fewer.tolist() == [8, 16, 24]
    (none,) = session.collect(session.launch([np.zeros(0, np.int32)], feed={0: 0}))
    assert none.shape == (0,)
    assert session.collect(session.launch([Fed((2,))]))[0].tolist()[1] in (0, 32)  # an empty one changes nothing


@pytest.mark.parametrize("on_gpu", [True, False], ids=["gpu", "cpu"])
def test_an_output_that_is_too_large_to_feed_on_is_refused(device: Device, on_gpu: bool) -> None:
    b = GraphBuilder()
    x, y = b.input((6,), "int32"), b.input((2,), "int32")
    graph = b.graph(b.call("aten.add.Tensor", x, x, dtype="int32"), b.call("aten.add.Tensor", y, y, dtype="int32"))
    session: Any = GpuSession(graph, device) if on_gpu else CpuSession(graph)
    given = [np.zeros(6, np.int32), np.zeros(2, np.int32)]
    with pytest.raises(HightideError, match="fit the input"):
        session.launch(given, feed={0: 1})


# ---- a step of rows of many sequences

PAGE, POOL, ROWS = 8, 256, 32


def step_graph() -> Graph:
    """A layer's attention over pages, then ids chosen for the rows that are wanted."""
    rng = np.random.default_rng(2)
    b = GraphBuilder()
    qkv, longest = b.input((1, ROWS, 4 * 8)), b.input((1,), "int32")
    tables = {
        name: b.input(dims, "int32")
        for name, dims in {
            "singles": (ROWS, 4),
            "tiles": (ROWS, 4),
            "pages": (POOL // PAGE,),
            "positions": (ROWS,),
            "places": (ROWS,),
            "wanted": (ROWS,),
        }.items()
    }
    settings = b.input((ROWS, 5))
    angles = [b.constant(rng.uniform(-1, 1, (64, 8)).astype(np.float32)) for _ in range(2)]
    pools = [b.zeros((1, POOL, 1, 8)) for _ in range(2)]
    at = tables["positions"], tables["places"]
    q = b.call("hightide.rope_pages.default", qkv, *angles, *pools, 2, 1, 8, "halves", None, None, 0.0, *at)
    keys = b.call("et_vk.select_as_symint.default", longest, 0, 0)
    work = tables["singles"], tables["tiles"], tables["pages"], keys, PAGE, 0.3
    attended = b.call("hightide.attend_pages.default", q, *pools, *work)
    rows = b.call("aten.index_select.default", attended, 1, tables["wanted"])
    flat = b.call("aten.view_copy.default", rows, [1, -1, 16])
    weight = b.constant(rng.normal(size=(40, 16)).astype(np.float32))
    logits = b.call("aten.linear.default", flat, weight)
    return b.graph(b.call("hightide.sample.default", logits, settings, dtype="int32"), logits)


def step(pieces: list[SequenceRows], wanted: list[int], seed: int) -> list[np.ndarray]:
    rng, made = np.random.default_rng(seed), ragged(pieces, PAGE, POOL)
    rows = made.places.size
    settings = np.tile(np.array([0, 0, 1, 0, 0.5], np.float32), (len(wanted), 1))
    longest = max((piece.keys for piece in pieces), default=0)
    tables = made.singles, made.tiles, made.pages, made.positions, made.places, np.array(wanted, np.int32)
    qkv = rng.uniform(-1, 1, (1, rows, 32)).astype(np.float32)
    return [qkv, np.array([longest], np.int32), *tables, settings]


STEPS = [
    ([SequenceRows(20, 0), SequenceRows(1, 0)], [19, 20]),
    ([SequenceRows(18, 2)], []),
    ([SequenceRows(1, 4), SequenceRows(1, 9)], [1, 0]),
    ([], []),
    ([SequenceRows(1, 4)], [0]),
]


@pytest.mark.parametrize("levels", [False, True], ids=["guessed", "given"])
def test_steps_without_rows_of_some_kind(device: Device, levels: bool) -> None:
    graph = step_graph()
    given = [step(pieces, wanted, n) for n, (pieces, wanted) in enumerate(STEPS)]
    dims = [tuple(array.shape for array in inputs) for inputs in given]
    names = [f"in{n}" for n in range(len(given[0]))]
    cpu = CpuSession(graph)
    options = SessionOptions(levels=dims[:2] if levels else None)
    with build_session(graph, device, [True] * len(names), names, options) as gpu:
        for inputs in given:
            for got, expected in zip(gpu.run(inputs), cpu.run(inputs), strict=True):
                assert got.shape == expected.shape and np.allclose(got, expected, atol=1e-5)


def test_levels_that_were_not_named_find_scratch(device: Device) -> None:
    """Split attention of one token needs scratch that the max level, with many tokens, does not."""
    routes = {"attention.decode": "split"}
    usual = llama_session(device)
    with llama_session(device, choices=routes, levels=[((1, 24), (1,))]) as session:
        assert not session.scratch
        for tokens, position in ((24, 0), (1, 24), (3, 25)):
            given = call(tokens, position)
            assert np.allclose(session.run(given)[0], usual.run(given)[0], atol=1e-4)
        assert session.scratch
