"""The routes to take on a device: what the caller forces, the environment says, was measured, is the default."""

from __future__ import annotations

from collections.abc import Mapping

from hightide.gpu.device import Device
from hightide.ops.choices import Choices, routes_from_environment


def choices_for(device: Device, forced: Mapping[str, str] | None = None) -> Choices:
    """What is forced first, then the environment's, then what was measured."""
    return Choices(device.traits, {**device.tuned, **routes_from_environment(), **(forced or {})})
