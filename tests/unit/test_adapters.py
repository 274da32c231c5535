"""Which adapter a device option selects."""

from __future__ import annotations

import pytest

from hightide.errors import DeviceError
from hightide.gpu import device
from hightide.gpu.device import Adapter, find_adapter

KINDS = {"Big": "DiscreteGPU", "Big too": "DiscreteGPU", "Small": "IntegratedGPU", "Software": "CPU"}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Adapter(n, name, kind, "Vulkan", "", {}, (), None) for n, (name, kind) in enumerate(KINDS.items())]
    monkeypatch.setattr(device, "adapters", lambda: tuple(found))


@pytest.mark.parametrize(
    "selector, name",
    [(None, "Big"), (3, "Software"), ("3", "Software"), ("soft", "Software"), ("gpu:1", "Big too"), ("GPU:2", "Small")],
)
def test_an_adapter_is_found(selector: str | int | None, name: str) -> None:
    assert find_adapter(selector).name == name


@pytest.mark.parametrize("selector", [4, "4", "other", "gpu:3", "gpu:", "gpu:x"])
def test_no_adapter_is_found(selector: str | int) -> None:
    with pytest.raises(DeviceError, match=r"there is no device .*; there are 'cpu' and 0: Big, "):
        find_adapter(selector)
