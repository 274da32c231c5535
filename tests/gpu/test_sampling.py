"""Tokens chosen on the GPU: greedy exactly, sampled with the frequencies that the reference gives."""

from __future__ import annotations

import numpy as np
import pytest
from op_runner import check_blank_parameters

from hightide.errors import InputError
from hightide.gpu.device import Device
from hightide.ops.builder import GraphBuilder
from hightide.ops.sampling.sampling import sample
from hightide.runtime.gpu_session import GpuSession


def sampler(device: Device, width: int) -> GpuSession:
    b = GraphBuilder()
    logits, settings = b.input((1, 8, width)), b.input((5,))
    return GpuSession(b.graph(b.call("hightide.sample.default", logits, settings, dtype="int32")), device)


@pytest.mark.parametrize("width", [1, 5, 255, 256, 1000, 4099])
def test_temperature_zero_takes_the_first_largest(width: int, device: Device) -> None:
    session = sampler(device, width)
    rng = np.random.default_rng(1)
    for rows in (8, 1, 3):
        logits = rng.integers(-9, 9, (1, rows, width)).astype(np.float32)  # with many ties
        session.poison()
        (ids,) = session.run([logits, np.zeros(5, np.float32)])
        check_blank_parameters(session, [logits, np.ones(5, np.float32)])
        np.testing.assert_array_equal(ids, logits.argmax(-1))


@pytest.mark.parametrize(
    "settings",
    [(1.0, 0, 1, 0), (0.7, 5, 1, 0), (1.3, 0, 0.6, 0), (1.0, 0, 1, 0.2), (0.9, 40, 0.8, 0.05), (1e-3, 0, 1, 0)],
)
def test_a_draw_picks_the_token_that_the_reference_picks(settings: tuple[float, ...], device: Device) -> None:
    session = sampler(device, 1000)
    rng = np.random.default_rng(2)
    differ = 0
    for _ in range(60):
        logits = rng.normal(size=(1, 1, 1000)).astype(np.float32) * 3
        draw = rng.uniform()
        (ids,) = session.run([logits, np.array([*settings, draw], np.float32)])
        differ += int(ids[0, 0]) != sample(logits[0, 0].astype(np.float64), np.array([*settings, np.float32(draw)]))
    assert differ <= 1  # a draw may fall on the other side of a boundary in float32


@pytest.mark.parametrize(
    ("width", "spread"), [(4099, 3), (30001, 2), (49152, 3), (49152, 0.05)], ids=["small", "odd", "peaked", "flat"]
)
def test_draws_from_any_vocabulary(width: int, spread: float, device: Device) -> None:
    """Whether few tokens are left or many, with and without a mask."""
    b = GraphBuilder()
    given = (b.input((1, 8, width)), b.input((8, 5)), b.input((2, -(-width // 32)), "int32"), b.input((8,), "int32"))
    session = GpuSession(b.graph(b.call("hightide.sample.default", *given, dtype="int32")), device)
    rng = np.random.default_rng(width)
    filters = [
        (0, 1, 0),
        (40, 1, 0),
        (40, 0.9, 0.01),
        (300, 0.95, 0),
        (2000, 1, 0),
        (0, 0.9, 0),
        (0, 0.5, 0.02),
        (0, 1, 0.05),
    ]
    differ = 0
    for _ in range(3):
        logits = rng.normal(size=(1, 8, width)).astype(np.float32) * spread
        draws = rng.uniform(size=8)
        settings = np.array([(0.8, *kept, draw) for kept, draw in zip(filters, draws, strict=True)], np.float32)
        masks = rng.integers(-(1 << 31), 1 << 31, (2, -(-width // 32))).astype(np.int32)
        masks[1] &= rng.integers(-(1 << 31), 1 << 31, masks.shape[1]) & rng.integers(
            -(1 << 31), 1 << 31, masks.shape[1]
        )
        masked = rng.integers(-1, 2, 8).astype(np.int32)
        (ids,) = session.run([logits, settings, masks, masked])
        for row, how, number, id in zip(logits[0], settings, masked, ids[0], strict=True):
            mask = None if number < 0 else masks[number]
            near = [how + np.array((0, 0, 0, 0, step), np.float32) for step in (0, -1e-5, 1e-5)]
            differ += int(id) not in [sample(row.astype(np.float64), settings, mask) for settings in near]
    assert differ <= 1  # a token may fall on the other side of a filter in float32


def test_filters_keep_what_they_say(device: Device) -> None:
    session = sampler(device, 300)
    rng = np.random.default_rng(3)
    logits = rng.permutation(300).astype(np.float32)[None, None] / 10
    order = np.argsort(-logits[0, 0])
    for top_k, allowed in ((1, 1), (3, 3)):
        seen = {
            int(session.run([logits, np.array([5, top_k, 1, 0, u], np.float32)])[0][0, 0]) for u in rng.uniform(size=40)
        }
        assert seen <= set(order[:allowed].tolist())
    weights = np.exp(logits[0, 0] - logits.max())
    allowed = set(np.flatnonzero(weights >= 0.5).tolist())
    seen = {
        int(session.run([logits, np.array([1, 0, 1, 0.5, u], np.float32)])[0][0, 0]) for u in np.linspace(0, 0.999, 40)
    }
    assert seen == allowed


@pytest.mark.parametrize("width", [1, 5, 300, 4099])
@pytest.mark.parametrize("settings", [(0, 0, 1, 0, 0.5), (1, 0, 1, 0, 0.5), (1, 40, 0.875, 0.0625, 0.375)])
def test_logits_that_are_not_numbers_give_minus_one(settings: tuple[float, ...], width: int, device: Device) -> None:
    session = sampler(device, width)
    rng = np.random.default_rng(4)
    given = np.array(settings, np.float32)
    rows = rng.normal(size=(1, 8, width)).astype(np.float32)
    at = rng.integers(0, width, 8)
    for n, value in enumerate((np.nan, np.inf, -np.nan, np.float32(np.nan))):
        rows[0, n, at[n]] = value
    rows[0, 4] = -np.inf
    rows[0, 5, : width // 2] = -np.inf  # ruled out
    (ids,) = session.run([rows, given])
    assert ids[0, :5].tolist() == [-1] * 5
    assert ids[0, 5:].tolist() == [sample(row.astype(np.float64), given) for row in rows[0, 5:]]


def test_settings_by_row(device: Device) -> None:
    """Each row as alone with its settings; no rows at all are fine."""
    b = GraphBuilder()
    logits, settings = b.input((1, 8, 300)), b.input((8, 5))
    session = GpuSession(b.graph(b.call("hightide.sample.default", logits, settings, dtype="int32")), device)
    alone = sampler(device, 300)
    rng = np.random.default_rng(5)
    for rows in (8, 3, 0, 1):
        given = rng.normal(size=(1, rows, 300)).astype(np.float32) * 3
        by_row = rng.uniform((0, 0, 0.5, 0, 0), (1.5, 40, 1, 0.1, 1), (rows, 5)).astype(np.float32)
        by_row[::3, 0] = 0
        (ids,) = session.run([given, by_row])
        assert ids.shape == (1, rows)
        for n in range(rows):
            assert ids[0, n] == alone.run([given[:, n : n + 1], by_row[n]])[0][0, 0]
    with pytest.raises(InputError, match="for all rows or each"):
        session.run([np.zeros((1, 2, 300), np.float32), np.zeros((3, 5), np.float32)])
