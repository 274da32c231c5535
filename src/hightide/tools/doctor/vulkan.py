"""What the Vulkan loader itself reports, asked through ctypes: devices, their drivers and their memory.

WebGPU does not say how much memory an adapter has, and leaves out adapters that are too old for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_SUCCESS, _INCOMPLETE = 0, 5
_APPLICATION_INFO, _INSTANCE_CREATE_INFO, _PROPERTIES_2, _DRIVER_PROPERTIES = 0, 1, 1000059001, 1000196000
_DEVICE_LOCAL = 1
_VERSION_1_1, _VERSION_1_2 = 1 << 22 | 1 << 12, 1 << 22 | 2 << 12
KINDS = {1: "IntegratedGPU", 2: "DiscreteGPU", 3: "VirtualGPU", 4: "CPU"}


@dataclass(frozen=True)
class VulkanDevice:
    name: str
    kind: str  # as WebGPU's: DiscreteGPU, IntegratedGPU, CPU
    vulkan: str  # "1.3.289"
    driver: str  # "Mesa 25.0.7", or the version as a number
    memory: int  # bytes of the memory that is the device's own


class _InstanceInfo(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("layer_count", ctypes.c_uint32),
        ("layers", ctypes.c_void_p),
        ("extension_count", ctypes.c_uint32),
        ("extensions", ctypes.c_void_p),
    ]


class _ApplicationInfo(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_uint32),
        ("engine", ctypes.c_char_p),
        ("engine_version", ctypes.c_uint32),
        ("api_version", ctypes.c_uint32),
    ]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("api_version", ctypes.c_uint32),
        ("driver_version", ctypes.c_uint32),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("name", ctypes.c_char * 256),
        ("rest", ctypes.c_byte * 1024),  # limits, which WebGPU reports; VkPhysicalDeviceProperties has 824 bytes in all
    ]


class _DriverProperties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("id", ctypes.c_uint32),
        ("name", ctypes.c_char * 256),
        ("info", ctypes.c_char * 256),
        ("conformance", ctypes.c_uint32),
    ]


class _Properties2(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("next", ctypes.c_void_p), ("properties", _Properties)]


class _Heap(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("flags", ctypes.c_uint32)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("type_count", ctypes.c_uint32),
        ("types", ctypes.c_uint32 * 2 * 32),
        ("heap_count", ctypes.c_uint32),
        ("heaps", _Heap * 16),
    ]


def vulkan_devices(loader: str) -> list[VulkanDevice]:
    """The devices that the loader of this name lists; none if it refuses."""
    with suppress(OSError, AttributeError):
        return _Vulkan(ctypes.CDLL(loader)).devices()
    return []


class _Vulkan:
    """A Vulkan instance for as long as the devices are read."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.get = library.vkGetInstanceProcAddr
        self.get.restype, self.get.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]

    def devices(self) -> list[VulkanDevice]:
        newest = ctypes.c_uint32(0)
        if self.get(None, b"vkEnumerateInstanceVersion"):
            self.library.vkEnumerateInstanceVersion(ctypes.byref(newest))
        wanted = _VERSION_1_2 if newest.value >= _VERSION_1_1 else 1 << 22  # a loader of Vulkan 1.0 takes only that
        application = _ApplicationInfo(type=_APPLICATION_INFO, name=b"hightide", api_version=wanted)
        info = _InstanceInfo(type=_INSTANCE_CREATE_INFO)
        info.application = ctypes.cast(ctypes.pointer(application), ctypes.c_void_p)
        instance = ctypes.c_void_p()
        if self.library.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)) != _SUCCESS:
            return []
        try:
            count = ctypes.c_uint32()
            enumerate_devices = self._function(instance, b"vkEnumeratePhysicalDevices", ctypes.c_int32)
            if enumerate_devices(instance, ctypes.byref(count), None) != _SUCCESS:
                return []
            handles = (ctypes.c_void_p * count.value)()
            if enumerate_devices(instance, ctypes.byref(count), handles) not in (_SUCCESS, _INCOMPLETE):
                return []
            return [self._device(instance, ctypes.c_void_p(handle)) for handle in handles[: count.value]]
        finally:
            self._function(instance, b"vkDestroyInstance")(instance, None)

    def _device(self, instance: ctypes.c_void_p, handle: ctypes.c_void_p) -> VulkanDevice:
        properties = _Properties()
        self._function(instance, b"vkGetPhysicalDeviceProperties")(handle, ctypes.byref(properties))
        driver = hex(properties.driver_version)
        if properties.api_version >= _VERSION_1_2:  # drivers have a name since then
            named = _DriverProperties(type=_DRIVER_PROPERTIES)
            whole = _Properties2(type=_PROPERTIES_2)
            whole.next = ctypes.cast(ctypes.pointer(named), ctypes.c_void_p)
            self._function(instance, b"vkGetPhysicalDeviceProperties2")(handle, ctypes.byref(whole))
            driver = " ".join(part.decode(errors="replace") for part in (named.name, named.info) if part) or driver
        memory = _Memory()
        self._function(instance, b"vkGetPhysicalDeviceMemoryProperties")(handle, ctypes.byref(memory))
        heaps = memory.heaps[: memory.heap_count]
        return VulkanDevice(
            name=properties.name.decode(errors="replace"),
            kind=KINDS.get(properties.kind, "Unknown"),
            vulkan=f"{properties.api_version >> 22 & 0x7F}.{properties.api_version >> 12 & 0x3FF}"
            f".{properties.api_version & 0xFFF}",
            driver=driver,
            memory=max((heap.size for heap in heaps if heap.flags & _DEVICE_LOCAL), default=0),
        )

    def _function(self, instance: ctypes.c_void_p, name: bytes, result: Any = None) -> Callable[..., Any]:
        address = self.get(instance, name)
        if not address:
            raise AttributeError(name.decode())
        call: Callable[..., Any] = ctypes.CFUNCTYPE(result)(address)
        return call
