"""Dims that the cases hold still, let loose: each input dim of each case at 1 and at an odd size, from one build.

A session takes any live dims up to its max, so what a case calls a number is only what it happens to run at. A dim
that no op would take smaller (the K of a linear, whose weight has it too) is refused by the plan, before anything
runs; every other one must agree with the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from op_cases import CASES, Case, In
from op_runner import Built, one_of_each_family

from hightide.errors import HightideError
from hightide.gpu.device import Device
from hightide.ops import REGISTRY
from hightide.ops.contract import Op
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

LEVEL = {"S": 7, "T": 3, "B": 2, "P": 13}

# Input dims, from the last, that are what a weight, a cache, another argument or the op itself says they are.
# (Ops of hightide's own take the place of such ops, and are not listed.)
FIXED: dict[str, set[tuple[int, int]]] = {
    "aten.split_with_sizes_copy.default": {(0, -1)},
    "aten.unbind_copy.int": {(0, -2)},
    "et_vk.rms_norm.default": {(0, -1)},
    "aten._native_batch_norm_legit.default": {(0, -2)},
    "aten._native_batch_norm_legit.no_stats": {(0, -3)},
    "aten._native_batch_norm_legit_no_training.default": {(0, -3)},
    "et_vk.linear_q4gsw.default": {(0, -1), (1, -1)},  # the columns of x and of a residual are the weight's
    "aten.linear.default": {(0, -1), (1, -1)},
    "et_vk.conv_with_clamp.default": {(0, -3)},
    "aten.grid_sampler_2d.default": {(1, -1)},
    "aten.pixel_shuffle.default": {(0, -3)},
    "aten.pixel_unshuffle.default": {(0, -1)},
    "torchao.choose_qparams_affine.default": {(0, -1)},
    "et_vk.linear_dq8ca_q4gsw.default": {(0, -1)},
    "quantized_decomposed.dequantize_per_channel.default": {(0, -2)},
    "et_vk.q8ta_pixel_shuffle.default": {(0, -3)},
    "et_vk.linear_q8ta_q8csw.default": {(0, -1)},
    "et_vk.q8ta_linear.default": {(0, -1)},
    "et_vk.linear_qcs4w.default": {(0, -1)},
    "et_vk.q8ta_conv2d_dw.default": {(0, -3)},
    "et_vk.linear_q4gsw_backward.default": {(0, -1)},
    "et_vk.apply_rotary_emb.default": {(0, -1), (1, -1), (2, -1), (3, -1)},
    "et_vk.apply_rotary_emb_interleaved.default": {(0, -1), (1, -2), (1, -1)},
    "sdpa_with_kv_cache.default": {(0, -1), (1, -2), (1, -1), (2, -2), (2, -1)},
    "update_cache.default": {(0, -4), (0, -2), (0, -1)},
    "llama.update_cache_with_indices.default": {(0, -4), (0, -2), (0, -1)},
    "custom_sdpa.default": {(0, -2), (0, -1)},
    "llama.custom_quantized_sdpa.default": {(0, -1)},
}


def still_dims(inputs: list[In]) -> Iterator[list[tuple[int, int]]]:
    """(input, dim) of dims that are numbers: those of one size together, and each by itself."""
    places = [(n, d) for n, spec in enumerate(inputs) for d, size in enumerate(spec.dims) if size not in (1, "P")]
    places = [(n, d) for n, d in places if isinstance(inputs[n].dims[d], int)]
    together = [
        [(n, d) for n, d in places if inputs[n].dims[d] == size] for size in {inputs[n].dims[d] for n, d in places}
    ]
    yield from (group for group in together if len(group) > 1)
    yield from ([place] for place in places)


def changed(inputs: list[In], places: list[tuple[int, int]], size: int) -> list[In]:
    specs = list(inputs)
    for n, d in places:
        specs[n] = replace(specs[n], dims=(*specs[n].dims[:d], size, *specs[n].dims[d + 1 :]))
    return specs


def let_loose(case: Case, device: Device) -> set[tuple[int, int]]:
    """Run the case with each dim smaller than it says; the (input, dim)s that could be."""
    built = Built(case, np.random.default_rng(3))
    gpu, cpu = GpuSession(built.graph, device), CpuSession(built.graph, dtype="float64")
    given, loose = list(built.inputs), set()
    for places in still_dims(given):
        most = given[places[0][0]].dims[places[0][1]]
        assert isinstance(most, int)
        for size in sorted({1, most // 2, max(1, most * 2 // 3) | 1} - {most}):
            built.inputs = changed(given, places, size)
            made = built.arrays(LEVEL)
            counted, zero = (  # indices that fit smaller dims: each once, and any
                [np.arange(a.size, dtype=a.dtype).reshape(a.shape) * n if a.dtype.kind == "i" else a for a in made]
                for n in (1, 0)
            )
            arrays = next((a for a in (made, counted, zero) if accepted(cpu, a)), None)
            if arrays is None:
                continue
            loose |= set(places)
            gpu.poison()
            for got, want in zip(gpu.run(arrays), cpu.run(arrays), strict=True):
                check(got, want, case.tolerance, f"{case.name}, inputs {[list(a.shape) for a in arrays]}")
    return loose


def accepted(session: CpuSession, arrays: list[np.ndarray]) -> bool:
    state = session.snapshot()
    try:
        session.run(arrays)
    except HightideError:
        return False
    finally:
        session.restore(state)
    return True


def check(got: np.ndarray, want: np.ndarray, tolerance: float, where: str) -> None:
    assert got.shape == want.shape, where
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=where)
    elif got.size:
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=where)
        error = np.abs(np.nan_to_num(got - want)).max() / max(
            float(np.where(np.isnan(want), 0, np.abs(want)).max()), 1e-3
        )
        assert error <= max(tolerance, 4e-6), f"{where}: error {error:.2e} of the range"


@pytest.mark.parametrize("case", one_of_each_family(CASES))
def test_dims_let_loose(case: Case, device: Device) -> None:
    let_loose(case, device)


@pytest.mark.slow
def test_every_dim_is_live_in_some_case(device: Device) -> None:
    """What is left over is listed, and nothing that is listed could be live."""
    every: dict[type[Op], set[tuple[int, int]]] = {}  # by op: its input dims, counted from the last
    live: dict[type[Op], set[tuple[int, int]]] = {}
    for case in CASES:
        op, loose = REGISTRY[case.op], let_loose(case, device)
        for n, spec in enumerate(Built(case, np.random.default_rng(3)).inputs):
            for d, size in enumerate(spec.dims):
                if size not in (1, "P"):
                    place = n, d - len(spec.dims)
                    every.setdefault(op, set()).add(place)
                    if isinstance(size, str) or (n, d) in loose:
                        live.setdefault(op, set()).add(place)
    left = {op.names[0]: rest for op in every if (rest := every[op] - live.get(op, set()))}
    assert {name: rest for name, rest in left.items() if not name.startswith("hightide.")} == FIXED
