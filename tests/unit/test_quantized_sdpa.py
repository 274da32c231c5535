"""KV caches of 8-bit codes: how rows become codes, and that attention on codes is attention on what they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from hightide.ops import REGISTRY

RNG = np.random.default_rng(3)


def coded(dims: tuple[int, ...]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    codes, zero = (RNG.integers(-100, 100, d, dtype=np.int8) for d in (dims, (*dims[:-1], 1)))
    scale = RNG.uniform(0.01, 0.02, (*dims[:-1], 1)).astype(np.float32)
    return {"": codes, "_zero": zero, "_scale": scale}, (codes.astype(np.float32) - zero) * scale


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "causal"])
def test_codes_stand_for_numbers(masked: bool) -> None:
    (q, plain_q), (k, plain_k), (v, plain_v) = (coded(d) for d in ((1, 3, 4, 8), (1, 9, 2, 8), (1, 9, 2, 8)))
    rule = {"position": 5, "causal": not masked, "scale": None, "dropout": 0.0}
    rule["mask"] = RNG.standard_normal((3, 9)).astype(np.float32) if masked else None
    given = {f"{name}{kind}": x for name, parts in (("q", q), ("k", k), ("v", v)) for kind, x in parts.items()}
    got = REGISTRY["llama.custom_quantized_sdpa.default"].evaluate({**given, **rule, "heads_first": False})
    want = REGISTRY["llama.custom_sdpa.default"].evaluate({"q": plain_q, "k": plain_k, "v": plain_v, **rule})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def executorch_codes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and zero points by the formulas of ExecuTorch's own kernels: the scale is chosen in float64, and the zero
    point is added to what is rounded already. Torch, and hightide, choose in float32 and add before they round."""
    least, most = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    scale = (most.astype(np.float64) - least) / 255
    by_least = 128 - abs(least / scale) < 127 - abs(most / scale)
    zero = np.where(by_least, -128 - least / scale, 127 - most / scale)
    zero = np.round(np.clip(zero, -128, 127).astype(np.float32))
    inverse = np.float32(1) / scale.astype(np.float32)
    return np.clip(zero + np.round(inverse * x), -128, 127), zero


def test_codes_are_those_of_executorch_but_halfway() -> None:
    """A scale differs by three halves of a unit in the last place at most, so a value by 5e-5 of a code at most: only
    one that is as near to the middle of two codes may get the other."""
    x = RNG.standard_normal((4000, 64)).astype(np.float32)
    scale, zero = REGISTRY["quantized_decomposed.choose_qparams_per_token_asymmetric.default"].evaluate({"x": x})
    given = {"x": x, "scale": scale, "zero": zero, "low": -128, "high": 127}
    codes = REGISTRY["quantized_decomposed.quantize_per_token.default"].evaluate(given)
    theirs, their_zero = executorch_codes(x)
    same_zero = (zero == their_zero)[:, 0]
    assert same_zero.mean() > 0.999 and abs(zero - their_zero).max() <= 1
    differ = codes[same_zero] != theirs[same_zero]
    assert differ.mean() < 1e-4 and abs(codes - theirs).max() <= 1
    from_middle = abs(abs(x / scale) % 1 - 0.5)[same_zero]
    assert from_middle[differ].max(initial=0) < 1e-4
