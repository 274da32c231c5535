"""The routes to take on a device: what the caller forces, what the environment says, what was measured, the defaults."""

from __future__ import annotations

from collections.abc import Mapping

from hightide.gpu.device import Device
from hightide.ops.choices import Choices, routes_from_environment


def choices_for(device: Device, forced: Mapping[str, str] | None = None) -> Choices:
    """What is forced first, then the environment's, then what was measured."""
    return Choices(device.traits, {**device.tuned, **routes_from_environment(), **(forced or {})})
