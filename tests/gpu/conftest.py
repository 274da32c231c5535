"""Everything here needs a WebGPU adapter; without one the tests are skipped, and say so."""

from __future__ import annotations

import pytest

from hightide.gpu.device import Device, adapters, find_adapter, open_device


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="no WebGPU adapter")
    for item in items:
        item.add_marker(pytest.mark.gpu)
        if not adapters():
            item.add_marker(skip)


@pytest.fixture(scope="session")
def device() -> Device:
    return open_device(find_adapter(None))
