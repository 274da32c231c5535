"""What the tests of file formats share."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest


@pytest.fixture
def little_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """No more than the module's MEMORY_LIMIT bytes are held at any time, whatever a file says."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < request.module.MEMORY_LIMIT
