"""Attention on 8-bit codes is attention on what they stand for."""

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
