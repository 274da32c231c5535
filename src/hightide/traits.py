"""What an adapter is and can do, as far as routes depend on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """The defaults are WebGPU's guarantees."""

    software: bool = False  # threads are SIMD lanes of a CPU: register tiles, few barriers
    f16: bool = False
    subgroups: bool = False
    subgroup_size: int = 0  # the fewest lanes that a full one has; 0 without subgroups
    invocations: int = 256  # per workgroup
    workgroup_bytes: int = 16_384
    storage_buffers: int = 8  # per dispatch

    @property
    def half_caches(self) -> bool:
        """Whether KV caches are halves unless somebody says otherwise."""
        return self.f16 and not self.software


SOFTWARE = Traits(software=True)
