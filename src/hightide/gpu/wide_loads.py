"""Kernels that read 64 bits at a time, for llvmpipe.

Mesa's llvmpipe loads from a storage buffer lane by lane and number by number: a test of the lane, a test of the bounds,
a load and an insertion for each, 300 instructions for a `vec4<f32>` in eight lanes. As two 64-bit numbers it takes
about half, and matrix products take 0.7 to 0.9 of the time (docs/log.md). The bits that a kernel sees are the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection

INT64 = "shader-int64"

# A vector that is only read, and the function that reads it, as `wgsl/shader.py` declares them.
_LOADED = re.compile(
    r"var<storage, read> (?P<name>\w+): array<vec(?P<count>[24])<(?P<held>[fiu](?:32|16))>>;\n"
    r"fn load_(?P=name)\(i: u32\) -> (?P<seen>[\w<>]+) \{ return [\w<>(]*\b(?P=name)\[i\]\)*; \}"
)


def has_wide_loads(adapter_name: str, features: Collection[str]) -> bool:
    """Whether an adapter gets such kernels. GPUs load 128 bits at a time, and some have no 64-bit integers."""
    return adapter_name.startswith("llvmpipe") and INT64 in features


def wide_loads(text: str) -> str:
    """The same kernel, whose vectors are read as 64-bit numbers; each line stays where it is."""
    return _LOADED.sub(_wide, text)


def _wide(found: re.Match[str]) -> str:
    name, count, held, seen = found["name"], int(found["count"]), found["held"], found["seen"]
    if held == "f16":
        if count == 2:
            return found[0]  # 32 bits
        numbers, halves = 1, f"vec4<f32>({', '.join(f'unpack2x16float({word})' for word in _words('wide'))})"
        value = halves if seen == "vec4<f32>" else f"bitcast<{seen}>({halves})"
    else:
        numbers = count // 2
        words = _words("wide") if numbers == 1 else _words("wide.x") + _words("wide.y")
        value = f"bitcast<{seen}>(vec{count}<u32>({', '.join(words)}))"
    array = "u64" if numbers == 1 else "vec2<u64>"
    return (
        f"var<storage, read> {name}: array<{array}>;\n"
        f"fn load_{name}(i: u32) -> {seen} {{ let wide = {name}[i]; return {value}; }}"
    )


def _words(wide: str) -> list[str]:
    return [f"u32({wide})", f"u32({wide} >> 32u)"]
