"""GPUs that kernels can be compiled for, with the published facts that the time model needs."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.errors import InputError
from hightide.traits import Traits


@dataclass(frozen=True)
class TargetGpu:
    name: str
    family: str  # as Mesa's RADV names it
    units: int  # compute units
    clock: float  # GHz, under load
    bandwidth: float  # GB/s of its memory
    lane_flops: int = 128  # operations of a unit per clock, in f32: 64 lanes, a multiply-add each
    simds: int = 2  # of a unit, each of which starts one instruction per clock
    simd_lanes: int = 32
    shared_bytes: int = 128  # of a unit's shared memory, per clock
    cache_bytes: int = 64  # of a unit's first-level cache, per clock
    latency: float = 0.6  # µs from a load to its value, out of memory
    cache_latency: float = 0.2  # the same out of a cache
    dispatch: float = 4.0  # µs between two dispatches that wait for each other
    max_binding: int = 1 << 31

    @property
    def traits(self) -> Traits:
        return Traits(f16=True, subgroups=True, subgroup_size=32, invocations=1024, workgroup_bytes=32768)

    @property
    def gflops(self) -> float:
        return self.units * self.clock * self.lane_flops


GPUS = {
    "amd:navi21": TargetGpu("Radeon RX 6900 XT (RDNA 2)", "NAVI21", units=80, clock=2.0, bandwidth=512),
    "amd:navi31": TargetGpu("Radeon RX 7900 XTX (RDNA 3)", "NAVI31", units=96, clock=2.3, bandwidth=960),
    "amd:gfx1151": TargetGpu("Radeon 8060S (RDNA 3.5)", "GFX1151", units=40, clock=2.8, bandwidth=256),
    "amd:gfx1201": TargetGpu("Radeon RX 9070 XT (RDNA 4)", "GFX1201", units=64, clock=2.4, bandwidth=640),
}
DEFAULT_TARGET = "amd:navi31"


def target_gpu(name: str) -> TargetGpu:
    if name not in GPUS:
        raise InputError(f"there is no target {name!r}; the targets are {', '.join(GPUS)}")
    return GPUS[name]
