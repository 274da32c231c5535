"""Elementwise functions number by number: small results keep their digits, and odd numbers give what torch gives.

The cases compare with the largest value of a tensor, beside which a small one that is wrong would not be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hightide.gpu.device import Device
from hightide.ops.builder import GraphBuilder
from hightide.ops.contract import FUNCTION
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession

ODD = np.array([0, np.nan, np.inf, -np.inf, 1, -1, 2, -2, 1e6, -1e6, 0.5, -0.5], np.float32)


def numbers(low: float, high: float) -> np.ndarray:
    """Of all magnitudes from 2^low to 2^high and of both signs, next to 1 too, and odd ones."""
    rng = np.random.default_rng(5)
    sizes = np.exp2(rng.uniform(low, high, 4096))
    next_to_one = 1 + rng.choice([-1, 1], 256) * np.exp2(rng.uniform(-20, -1, 256))
    return np.concatenate([sizes, -sizes, next_to_one, -next_to_one, ODD]).astype(np.float32)


UNARY = {
    "exp2": numbers(-100, 6.5),
    "expm1": numbers(-100, 6),
    "log": numbers(-100, 100),
    "log2": numbers(-100, 100),
    "log10": numbers(-100, 100),
    "log1p": numbers(-100, 100),
    "tanh": numbers(-100, 10),
    "atan": numbers(-100, 100),
    "sinh": numbers(-100, 6.4),
    "cosh": numbers(-100, 6.4),
    "asin": numbers(-100, 0.1),
    "acos": numbers(-100, 0.1),
    "asinh": numbers(-100, 126),
    "acosh": numbers(-1, 126),
    "atanh": numbers(-100, 0.1),
    "erf": numbers(-100, 10),
    "elu": numbers(-100, 6),
    "isnan": ODD,
    "isinf": ODD,
}
X = numbers(-40, 40)
Y = np.random.default_rng(6).permutation(X)
PAIRS = [a.reshape(-1) for a in np.meshgrid(ODD, ODD)]
BINARY = ["aten.atan2.default", "aten.remainder.Tensor", "aten.fmod.Tensor"]


def check(name: str, inputs: Sequence[np.ndarray], device: Device, out: str = "float32") -> None:
    b = GraphBuilder()
    graph = b.graph(b.call(name, *[b.input(x.shape, str(x.dtype)) for x in inputs], dtype=out))
    (want,) = CpuSession(graph, dtype="float64").run(inputs)
    with GpuSession(graph, device) as session:
        (got,) = session.run(inputs)
    with np.errstate(all="ignore"):
        want = want.astype(got.dtype)
        near = np.isclose(got, want, rtol=FUNCTION, atol=np.finfo(np.float32).tiny, equal_nan=True)
    wrong = np.flatnonzero(~near)
    assert not wrong.size, [(*(x[n] for x in inputs), got[n], want[n]) for n in wrong[:5]]


@pytest.mark.parametrize("name", UNARY)
def test_small_numbers_keep_their_digits(name: str, device: Device) -> None:
    check(f"aten.{name}.default", [UNARY[name]], device, "bool" if name.startswith("is") else "float32")


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name: str, device: Device) -> None:
    check(name, [X, Y], device)
    check(name, PAIRS, device)


@pytest.mark.parametrize("name", BINARY[1:])
def test_remainders_of_integers_are_exact(name: str, device: Device) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-(2**31), 2**31, 1000).astype(np.int32)
    y = (rng.integers(1, 2**31, 1000) >> rng.integers(0, 31, 1000)).astype(np.int32) * rng.choice([-1, 1], 1000)
    x[:4], y[:4] = -(2**31), [-1, 1, 2**31 - 1, -(2**31)]
    check(name, [x, np.where(y == 0, 5, y).astype(np.int32)], device, "int32")


def test_squares_that_overflow_are_no_infinity(device: Device) -> None:
    x = np.array([3e38, -2e38, 1e-30, 1e30], np.float32)
    check("aten.hypot.default", [x, x[::-1].copy()], device)
