"""What the tests of language models share."""

from __future__ import annotations

import pytest

from hightide.gpu.device import adapters


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def where(request: pytest.FixtureRequest) -> str | None:
    """The device of a model: the NumPy references, or the GPU where there is an adapter."""
    if request.param == "cpu":
        return "cpu"
    if not adapters():
        pytest.skip("no WebGPU adapter")
    return None
