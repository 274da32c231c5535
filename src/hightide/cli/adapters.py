"""`hightide adapters`: the devices that programs can run on."""

from __future__ import annotations

import json
from typing import Any

from hightide.cli.options import Json
from hightide.gpu import device

# What decides which programs and which routes an adapter can run.
LIMITS = {
    "max-storage-buffer-binding-size": "largest tensor",
    "max-buffer-size": "largest buffer",
    "max-storage-buffers-per-shader-stage": "tensors per kernel",
    "max-compute-workgroup-storage-size": "shared memory",
    "max-compute-invocations-per-workgroup": "threads per workgroup",
}
FEATURES = ("shader-f16", "subgroup", "timestamp-query", "immediates")


def adapters(as_json: Json = False) -> None:
    """List the WebGPU adapters, best first.

    With the limits and features that decide what each can run.
    """
    found: list[dict[str, Any]] = [
        {
            "index": adapter.index,
            "name": adapter.name,
            "kind": adapter.kind,
            "backend": adapter.backend,
            "driver": adapter.driver,
            "limits": {name: adapter.limits[name] for name in LIMITS if name in adapter.limits},
            "features": [feature for feature in adapter.features if feature.startswith(FEATURES)],
        }
        for adapter in device.adapters()
    ]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for entry in found:
        print(f"{entry['index']}: {entry['name']} ({entry['kind']}, {entry['backend']}, {entry['driver']})")
        for name, meaning in LIMITS.items():
            if name in entry["limits"]:
                print(f"   {meaning:22} {_amount(name, entry['limits'][name])}")
        print(f"   {'features':22} {', '.join(entry['features']) or 'none'}")
    print("cpu: the NumPy references")


def _amount(limit: str, value: int) -> str:
    if not limit.endswith("-size"):
        return str(value)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value} bytes"
