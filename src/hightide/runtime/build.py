"""From a graph to a session: the device it runs on, and how it is built there.

The GPU half of the runtime is imported only once a GPU is asked for: wgpu takes longer to import than a program takes
to load, and the NumPy references need none of it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hightide.errors import FOREIGN, DeviceError, InputError, ProgramError, describe
from hightide.fuse import fuse
from hightide.graph.graph import Graph
from hightide.option_checks import shown
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Planner
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.session import Session
from hightide.runtime.session_plan import BuildLevels

if TYPE_CHECKING:
    from hightide.gpu.device import Device

KV_TYPES = (None, "f16", "f32")


def named_device(device: str | int | None) -> str | int | None:
    """The device that the caller names, else the one in HIGHTIDE_DEVICE; "cpu" in any case is "cpu"."""
    if device is None:
        device = os.environ.get("HIGHTIDE_DEVICE") or None
    if isinstance(device, str) and device.strip():
        return "cpu" if device.strip().lower() == "cpu" else device.strip()
    if device is not None and (not isinstance(device, int) or isinstance(device, bool) or device < 0):
        raise InputError(f"device must be 'cpu', or an adapter's index or part of its name, not {shown(device)}")
    return device


def choose_device(selector: str | int | None) -> Device | None:
    """The opened device that this selects; None for the NumPy references ("cpu", or a machine without an adapter)."""
    if selector == "cpu":
        return None
    from hightide.gpu.device import adapters, find_adapter, open_device

    try:
        usable = selector is not None or bool(adapters())
    except DeviceError:  # no driver at all
        usable = False
    if not usable:
        warnings.warn("no WebGPU adapter was found: programs run on the NumPy references", stacklevel=4)
        return None
    return open_device(find_adapter(selector))


def check_kv(kv: str | None) -> None:
    if kv not in KV_TYPES:
        raise InputError(f"KV caches are held as f16 or f32, not as {shown(kv)}")


@dataclass(frozen=True)
class SessionOptions:
    """How a graph is held and run on a GPU."""

    kv: str | None = "f32"  # "f16" holds KV caches as halves; None does so on a GPU that has them
    choices: Mapping[str, str] | None = None  # routes that are forced, by the name of the choice
    passes: bool = True  # else it runs the graph as the file has it
    proven: bool = True  # kernels are checked before they are used, and routes that answer wrong are left out
    levels: BuildLevels = None  # the input dims that it makes itself ready for, in place of guesses


def build_session(
    graph: Graph,
    gpu: Device | None,
    dynamic: Sequence[bool],
    names: Sequence[str],
    options: SessionOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Session:
    """A session on a GPU, or on the NumPy references. `progress` is called with (bytes uploaded, bytes in all)."""
    options = options or SessionOptions()
    kv = options.kv
    check_kv(kv)
    if kv == "f16" and (gpu is None or not gpu.traits.f16):
        raise InputError("KV caches in f16 need an adapter with 16-bit floats (the shader-f16 feature)")
    if gpu is None:
        return CpuSession(graph, dynamic, names)
    from hightide.runtime.gpu_session import GpuSession
    from hightide.runtime.proven_session import ProvenSession
    from hightide.runtime.prover import proving

    half_caches = kv == "f16" or (kv is None and gpu.traits.half_caches)
    graph = fused(graph) if options.passes else graph
    made = ProvenSession if options.proven and proving() else GpuSession
    given: dict[str, Any] = {"choices": options.choices, "half_caches": half_caches, "levels": options.levels}
    return made(graph, gpu, dynamic, names, progress=progress, **given)


def fused(graph: Graph) -> Graph:
    """The graph after all passes. They trust its shapes: where that fails, planning it as it is says what is wrong."""
    try:
        return fuse(graph)
    except FOREIGN as error:
        Planner(graph, dispatch=False).plan_max(MaxElements())
        raise ProgramError(f"its calls do not fit each other ({describe(error)})") from error
