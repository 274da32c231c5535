"""With `rows=alike` a row has the same bits alone and in any batch, wherever it stands there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_runner import of_four_lanes
from test_blocks import K, random_blocks, weight_value

from hightide.gpu.device import Device
from hightide.graph.values import TensorValue
from hightide.ops.attention.steps import DECODE
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.ops.linear.routes import ACTIVATIONS, GEMM
from hightide.ops.pages.work_lists import SequenceRows, ragged
from hightide.ops.rows import ROWS
from hightide.runtime.gpu_session import GpuSession

N, MOST = 40, 100
COUNTS = [*range(1, 34), 64, MOST]
ALIKE = {ROWS.name: "alike"}


def check(b: GraphBuilder, outputs: list[TensorValue], widths: list[int], device: Device, **choices: str) -> None:
    """The inputs are rows of these widths, and so are the outputs: each row alone, then in batches of all sizes."""
    rng = np.random.default_rng(3)
    given = [rng.normal(size=(MOST, width)).astype(np.float32) for width in widths]
    with GpuSession(b.graph(*outputs), device, choices=ALIKE | choices) as session:

        def run(rows: np.ndarray) -> list[np.ndarray]:
            return session.run([x[rows] for x in given])

        singles = [run(np.array([n])) for n in range(MOST)]
        alone = [np.concatenate(arrays) for arrays in zip(*singles, strict=True)]
        for count in COUNTS:
            rows = rng.permutation(MOST)[:count]
            for n, (got, wanted) in enumerate(zip(run(rows), alone, strict=True)):
                assert got.tobytes() == wanted[rows].tobytes(), f"output {n} of {count} rows"
        plans = [session.level([x[:count] for x in given])[1] for count in (1, 2, 4, 9, MOST)]
        assert len({tuple(step.dispatch.kernel for step in plan.steps) for plan in plans}) == 1


def linears(b: GraphBuilder, op: str, *weight: Any) -> tuple[list[TensorValue], list[int]]:
    """A linear with every epilogue, and the widths of the inputs."""
    rng = np.random.default_rng(4)
    x, residual, half = (b.input((MOST, width)) for width in (K, N, N // 2))
    bias = b.constant(rng.normal(size=N).astype(np.float32))
    plain = b.call(op, x, *weight, bias)
    added = b.call(op, x, *weight, None, residual, "")
    gated = b.call(op, x, *weight, bias, half, "silu")
    gelu = b.call(op, x, *weight, None, None, "gelu_tanh")
    norm = b.constant(rng.normal(size=N).astype(np.float32))
    total, normed = b.call("hightide.add_norm.default", residual, plain, norm, 1e-5)
    return [plain, added, gated, gelu, total, normed], [K, N, N // 2]


FAST = ("Q4_1", "Q6_K")  # the others take long to compile


@pytest.mark.parametrize("kind", [k if k in FAST else pytest.param(k, marks=pytest.mark.slow) for k in BLOCK_TYPES])
def test_linears_over_blocks(kind: str, device: Device) -> None:
    b = GraphBuilder()
    weight = weight_value(b, kind, random_blocks(kind, N, np.random.default_rng(5)))
    check(b, *linears(b, "hightide.linear.default", weight), device)


def q4gsw(b: GraphBuilder, k: int = K, group: int = 64) -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    codes = b.constant(rng.integers(0, 256, (N, k // 2), dtype=np.uint8))
    return codes, b.constant(rng.uniform(0.01, 0.1, (k // group, N)).astype(np.float32)), group


@pytest.mark.parametrize(
    "route", [pytest.param(route, marks=[pytest.mark.slow] * (route == "quads")) for route in GEMM.options]
)
def test_4_bit_linears_on_every_route(route: str, device: Device) -> None:
    device = of_four_lanes(device) if route == "quads" else device
    if not GEMM.possible(device.traits, route):
        pytest.skip(f"{device.adapter.name} cannot run {route}")
    b = GraphBuilder()
    check(b, *linears(b, "hightide.linear_q4.default", *q4gsw(b)), device, **{GEMM.name: route})


@pytest.mark.parametrize("route", ["registers", pytest.param("shared", marks=pytest.mark.slow)])
def test_4_bit_linears_with_activations_in_8_bits(route: str, device: Device) -> None:
    b = GraphBuilder()
    routes = {GEMM.name: route, ACTIVATIONS.name: "int8"}
    check(b, *linears(b, "hightide.linear_q4.default", *q4gsw(b)), device, **routes)


def test_float_linears_and_others(device: Device) -> None:
    rng, b = np.random.default_rng(5), GraphBuilder()
    weight = b.constant(rng.normal(size=(N, K)).astype(np.float32))
    outputs, widths = linears(b, "hightide.linear.default", weight)
    x, odd = b.input((MOST, K)), b.input((MOST, 31))
    outputs.append(b.call("aten.linear.default", odd, b.constant(rng.normal(size=(9, 31)).astype(np.float32))))
    outputs.append(b.call("aten.mm.default", x, b.constant(rng.normal(size=(K, 9)).astype(np.float32))))
    eight = b.constant(rng.integers(-128, 128, (N, K), dtype=np.int8))
    four = b.constant(rng.integers(0, 256, (N, K // 2), dtype=np.uint8))
    scales = b.constant(rng.uniform(0.01, 0.1, N).astype(np.float32))
    outputs += [b.call("et_vk.linear_qcs4w.default", x, held, scales) for held in (eight, four)]
    check(b, outputs, [*widths, K, 31], device)


@pytest.mark.parametrize("lanes", ["8", "64"])
def test_norms_and_softmax(lanes: str, device: Device) -> None:
    rng, b = np.random.default_rng(5), GraphBuilder()
    outputs = []
    widths = [576, 576, 31]
    inputs = [b.input((MOST, width)) for width in widths]
    for x in inputs[1:]:
        weight, bias = (b.constant(rng.normal(size=x.dims[1:]).astype(np.float32)) for _ in range(2))
        outputs.append(b.call("et_vk.rms_norm.default", x, weight, 1e-5))
        outputs.append(b.call("aten.native_layer_norm.default", x, list(x.dims[1:]), weight, bias, 1e-5)[0])
        outputs.append(b.call("aten._softmax.default", x, -1, False))
    outputs += b.call(
        "hightide.add_norm.default", *inputs[:2], b.constant(rng.normal(size=576).astype(np.float32)), 1e-5
    )
    check(b, outputs, widths, device, **{"rows.lanes": lanes})


@pytest.mark.parametrize("routes", [{DECODE.name: "single"}, {DECODE.name: "split"}], ids=lambda r: r[DECODE.name])
@pytest.mark.parametrize("window", [0, 40])
def test_rows_of_ragged_batches(routes: dict[str, str], window: int, device: Device) -> None:
    """Every row a single, with any others beside it, in any pages."""
    if not DECODE.possible(device.traits, routes[DECODE.name]):
        pytest.skip("this adapter has no quads")
    page, pool, most = 16, 2048, 24
    rng, b = np.random.default_rng(6), GraphBuilder()
    q, longest = b.input((1, most, 9, 64)), b.input((1,), "int32")
    pools = [b.input((1, pool, 3, 64)) for _ in range(2)]
    singles, tiles, pages = (b.input(dims, "int32") for dims in ((most, 4), (most, 4), (pool // page,)))
    keys = b.call("et_vk.select_as_symint.default", longest, 0, 0)
    work = singles, tiles, pages, keys, page, 0.125, window
    session = GpuSession(
        b.graph(b.call("hightide.attend_pages.default", q, *pools, *work)), device, choices=ALIKE | routes
    )
    lengths = [1, 5, 64, 300, 299, 17]
    content = [rng.normal(size=(2, length, 3, 64)).astype(np.float32) for length in lengths]
    queries = [rng.normal(size=(9, 64)).astype(np.float32) for _ in lengths]

    def run(which: list[int]) -> list[bytes]:
        made = ragged([SequenceRows(1, lengths[n] - 1) for n in which], page, pool)
        state = [np.full((1, pool, 3, 64), np.nan, np.float32) for _ in range(2)]
        own = np.split(made.own, np.cumsum([lengths[n] for n in which])[:-1])
        for n, rows in zip(which, own, strict=True):
            for held, part in zip(state, content[n], strict=True):
                held[0, rows] = part
        most_keys = np.array([max(lengths[n] for n in which)], np.int32)
        given = [np.stack([queries[n] for n in which])[None], most_keys, *state, made.singles, made.tiles, made.pages]
        return [row.tobytes() for row in session.run(given)[0][0]]

    alone = [run([n])[0] for n in range(len(lengths))]
    for which in ([0, 1], [5, 3, 2], [4, 3, 2, 1, 0, 5], [2, 4], [3, 3, 1]):
        assert run(which) == [alone[n] for n in which], which
