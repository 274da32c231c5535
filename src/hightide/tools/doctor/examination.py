"""The examination as data, which `hightide doctor` prints or writes as JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from hightide.errors import DeviceError
from hightide.gpu import measurements
from hightide.gpu.device import Adapter, Device, adapters, find_adapter, open_device
from hightide.gpu.limits import known_limits, measure_limits
from hightide.runtime.device_routes import tuned_routes
from hightide.runtime.need import Need
from hightide.runtime.verdicts import Verdicts, Wrong
from hightide.tools.doctor.fits import Fit, adapter_memory, find_fits
from hightide.tools.doctor.remedies import Finding, find_problems
from hightide.tools.doctor.selftest import TrialResult, kernels_digest, self_test
from hightide.tools.doctor.system import System, read_system
from hightide.tools.doctor.vulkan import VulkanDevice, vulkan_devices

FILE = "selftest.json"


@dataclass(frozen=True)
class Property:
    """A limit or feature that matters, with what it enables or costs."""

    name: str
    value: str
    meaning: str
    good: bool = True


@dataclass(frozen=True)
class SelfTest:
    """The result of the self-test, now or when it last ran."""

    trials: int
    routes: int
    failures: tuple[tuple[str, str], ...]  # (trial, problem)
    seconds: float
    before: bool = False  # it is the result of an earlier run


@dataclass(frozen=True)
class Examination:
    system: System
    vulkan: tuple[VulkanDevice, ...]
    adapters: tuple[Adapter, ...]
    examined: Adapter | None  # the one that the rest is about
    problems: tuple[Finding, ...]
    properties: tuple[Property, ...] = ()
    memory: int = 0
    models: tuple[Fit, ...] = ()
    self_test: SelfTest | None = None
    wrong: tuple[Wrong, ...] = ()  # what sessions and the self-test found wrong on this adapter and driver

    @property
    def healthy(self) -> bool:
        return self.examined is not None and not (self.self_test and self.self_test.failures) and not self.wrong

    def as_json(self) -> dict[str, Any]:
        def described(adapter: Adapter) -> dict[str, Any]:
            return {name: getattr(adapter, name) for name in ("index", "name", "kind", "backend", "driver")}

        return {
            "healthy": self.healthy,
            "system": asdict(self.system),
            "vulkan": [asdict(device) for device in self.vulkan],
            "adapters": [described(adapter) for adapter in self.adapters],
            "examined": self.examined.index if self.examined else None,
            "problems": [asdict(problem) for problem in self.problems],
            "properties": [asdict(row) for row in self.properties],
            "memory": self.memory,
            "models": [asdict(model) for model in self.models],
            "self_test": asdict(self.self_test) if self.self_test else None,
            "wrong": [asdict(one) for one in self.wrong],
        }


def examine(
    selector: str | int | None = None,
    *,
    test: bool = True,
    fresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Examination:
    """Examine this machine and one adapter; `test` also measures it and runs the self-test, `fresh` once more."""
    system = read_system()
    devices = tuple(vulkan_devices(system.loader)) if system.loader else ()
    found: tuple[Adapter, ...] = ()
    with suppress(DeviceError):  # no driver at all: what follows says why
        found = adapters()
    problems = tuple(find_problems(system, found, len(devices)))
    if not found:
        return Examination(system, devices, found, None, problems)
    adapter = find_adapter(selector)
    device = open_device(adapter)
    memory = adapter_memory(adapter, [(d.name, d.memory) for d in devices])
    limits = measure_limits(device, fresh=fresh) if test else known_limits(device)
    models = find_fits(memory, device.traits.half_caches, limits.read_gb_s if limits else 0)
    result = tested(device, fresh, progress) if test else None
    return Examination(
        system,
        devices,
        found,
        adapter,
        problems,
        tuple(properties(device)),
        memory,
        tuple(models),
        result,
        tuple(Verdicts(adapter).wrong.values()),
    )


def tested(device: Device, fresh: bool = False, progress: Callable[[int, int], None] | None = None) -> SelfTest:
    """The self-test's result: kept for this adapter, driver and these kernels, or made now."""
    key = f"{measurements.adapter_key(device.adapter)} | kernels {kernels_digest()}"
    known = measurements.load(FILE).get(key)
    if known is not None and not fresh:
        with suppress(TypeError, KeyError, ValueError, OverflowError):  # a damaged file: test again
            failures = tuple((str(name), str(problem)) for name, problem in known["failures"])
            return SelfTest(int(known["trials"]), int(known["routes"]), failures, float(known["seconds"]), before=True)
    start = time.perf_counter()
    results = self_test(device, progress=progress)
    keep_verdicts(device, results, fresh)
    result = _summary(results, time.perf_counter() - start)
    entry = {**asdict(result), "failures": [list(failure) for failure in result.failures]}
    measurements.save(FILE, {**measurements.load(FILE), key: entry})
    return result


def keep_verdicts(device: Device, results: list[TrialResult], fresh: bool = False) -> None:
    """What the trials say about kernels, for the sessions of this adapter; `fresh` drops what was known."""
    verdicts = Verdicts(device.adapter)
    if fresh:
        verdicts.forget()
    found: dict[Need, str] = {}
    for result in results:
        for need, problem in result.verdicts.items():
            found[need] = found.get(need) or problem
    for need, problem in found.items():
        verdicts.note(need, problem)
    verdicts.save()


def _summary(results: list[TrialResult], seconds: float) -> SelfTest:
    routes = {route for result in results for route in result.routes}
    failures = tuple((result.trial.name, result.problem) for result in results if result.problem)
    return SelfTest(len(results), len(routes), failures, round(seconds, 2))


def properties(device: Device) -> list[Property]:
    """The limits and features that decide what runs, and how."""
    traits = device.traits
    features = device.adapter.features
    timed = "timestamp-query-inside-passes" in features
    rows = [
        Property(
            "largest tensor",
            amount(device.max_binding),
            "larger weights are split; another tensor that is larger is refused",
        ),
        Property(
            "tensors per kernel",
            str(traits.storage_buffers),
            "8 are enough for every kernel" if traits.storage_buffers >= 8 else "some kernels need 8",
            traits.storage_buffers >= 8,
        ),
        Property(
            "threads per workgroup",
            str(traits.invocations),
            "256 are enough for every kernel" if traits.invocations >= 256 else "some kernels need 256",
            traits.invocations >= 256,
        ),
        Property(
            "workgroup memory",
            amount(traits.workgroup_bytes),
            "16 KiB are enough for every kernel" if traits.workgroup_bytes >= 16_384 else "some kernels need 16 KiB",
            traits.workgroup_bytes >= 16_384,
        ),
        Property(
            "halves (f16)",
            _yes(traits.f16),
            "fp16 programs, and KV caches with --kv f16, take half the memory"
            if traits.f16
            else "fp16 programs and KV caches are held in float32: twice the memory",
            traits.f16,
        ),
        Property(
            "subgroups",
            _yes(traits.subgroups),
            "routes that add up across threads without barriers can be chosen"
            if traits.subgroups
            else "sums across threads go through workgroup memory",
            traits.subgroups,
        ),
        Property(
            "timestamps",
            _yes(timed),
            "`hightide profile` times every dispatch" if timed else "`hightide profile` times passes or submits only",
            timed,
        ),
        _routes(device),
        _shader_cache(device),
    ]
    return rows


def _routes(device: Device) -> Property:
    if tuned_routes(device.adapter):
        return Property("routes", "tuned", "measured on this adapter; `hightide tune --show` lists them")
    return Property("routes", "defaults", "`hightide tune` measures which are faster here")


def _shader_cache(device: Device) -> Property:
    """Whether compiled kernels outlast the process: WebGPU has no such thing, drivers do."""
    if "Mesa" not in device.adapter.driver:
        return Property("kernel cache", "the driver's", "compiled kernels are kept as the driver sees fit")
    if os.environ.get("MESA_SHADER_CACHE_DISABLE", "").lower() in ("1", "true", "yes"):
        return Property("kernel cache", "no", "MESA_SHADER_CACHE_DISABLE is set: kernels are compiled anew", False)
    return Property("kernel cache", "Mesa's", "compiled kernels are kept on the disk: later starts are faster")


def amount(size: int) -> str:
    """Bytes for people."""
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size / step:.3g} {unit}"
    return f"{size} bytes"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
