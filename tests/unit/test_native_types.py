"""Types of WebGPU's header are looked up, not parsed; they are the ones that cffi would find."""

from __future__ import annotations

from typing import Any

import pytest
from wgpu.backends.wgpu_native import ffi

from hightide.gpu import native

NAMES = (
    *("WGPUStringView *", "WGPUChainedStruct * ", "WGPULimits *", "WGPUDeviceDescriptor *", "WGPUBindGroupEntry[]"),
    *(
        "WGPUAdapter[]",
        "WGPUCommandBuffer[]",
        "WGPUDevice",
        "WGPUFeatureName[]",
        "WGPUBufferMapCallback",
        "uint32_t []",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_what_cffi_parses(name: str) -> None:
    assert native.ffi is ffi
    parser: Any = ffi._parser
    with ffi._lock:
        found, parsed = (
            ffi._get_cached_btype(type) for type in (parser.parse_type(name), parser.__class__.parse_type(parser, name))
        )
    assert found is parsed


def test_those_of_the_header_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parser: Any = ffi._parser
    monkeypatch.setattr(parser, "_parse", None)
    assert parser.parse_type("WGPUDeviceDescriptor *") == parser.parse_type("WGPUDeviceDescriptor*")
    with pytest.raises(TypeError):
        parser.parse_type("void(WGPUDevice, void *)")
