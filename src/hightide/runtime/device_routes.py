"""The routes to take on a device: what the caller forces, the environment says, was measured, is the default."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping

from hightide.gpu import measurements
from hightide.gpu.device import Adapter, Device
from hightide.ops.choices import Choices, routes_from_environment
from hightide.planning.planner import Planner

TUNED = "tuned.json"  # what `hightide tune` found, by adapter


def choices_for(device: Device, forced: Mapping[str, str] | None = None) -> Choices:
    """What is forced first, then the environment's, then what was measured."""
    return Choices(device.traits, {**tuned_routes(device.adapter), **routes_from_environment(), **(forced or {})})


def forcing(planner: Planner, routes: Mapping[str, str]) -> Planner:
    """A planner of the same graph that takes these routes, by the name of the choice, and else the same ones."""
    other = copy.copy(planner)
    other.choices = Choices(planner.choices.traits, {**planner.choices.chosen, **routes})
    return other


def tuned_routes(adapter: Adapter) -> dict[str, str]:
    """What `hightide tune` found for this adapter and driver; HIGHTIDE_TUNED=0 leaves it out."""
    if os.environ.get("HIGHTIDE_TUNED") == "0":
        return {}
    entry = measurements.load(TUNED).get(measurements.adapter_key(adapter))
    chosen = entry.get("chosen") if isinstance(entry, dict) else None
    return {str(name): str(option) for name, option in chosen.items()} if isinstance(chosen, dict) else {}
