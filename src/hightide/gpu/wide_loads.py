"""Kernels that read 64 bits at a time, for llvmpipe.

Mesa's llvmpipe loads from a storage buffer lane by lane and number by number: a test of the lane, a test of the bounds,
a load and an insertion for each, 300 instructions for a `vec4<f32>` in eight lanes. As two 64-bit numbers it takes
about half, and matrix products take 0.7 to 0.9 of the time (docs/log.md). The bits that a kernel sees are the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection

INT64 = "shader-int64"

# A vector, and the functions that read and write it, as `wgsl/shader.py` declares them.
_LOADED = re.compile(
    r"var<storage, (?P<access>read|read_write)> (?P<name>\w+): array<vec(?P<count>[24])<(?P<held>[fiu](?:32|16))>>;\n"
    r"fn load_(?P=name)\(i: u32\) -> (?P<seen>[\w<>]+) \{ return [\w<>(]*\b(?P=name)\[i\]\)*; \}"
    r"(?P<store>\nfn store_(?P=name)\(i: u32, value: (?P=seen)\) \{ (?P=name)\[i\] = [^;]*; \})?"
)


def has_wide_loads(adapter_name: str, features: Collection[str]) -> bool:
    """Whether an adapter gets such kernels. GPUs load 128 bits at a time, and some have no 64-bit integers."""
    return adapter_name.startswith("llvmpipe") and INT64 in features


def wide_loads(text: str) -> str:
    """The same kernel, whose vectors are read as 64-bit numbers; each line stays where it is."""
    return _LOADED.sub(_wide, text)


def _wide(found: re.Match[str]) -> str:
    name, count, held, seen = found["name"], int(found["count"]), found["held"], found["seen"]
    floats = "vec4<f32>"
    if found["access"] == "read_write" and held not in ("f32", "f16"):
        return found[0]  # kernels may take it by its index as well
    if held == "f16":
        if count == 2:
            return found[0]  # 32 bits
        numbers, halves = 1, f"{floats}({', '.join(f'unpack2x16float({word})' for word in _words('wide'))})"
        value = halves if seen == floats else f"bitcast<{seen}>({halves})"
        given = "value" if seen == floats else f"bitcast<{floats}>(value)"
        words = [f"pack2x16float({given}.{two})" for two in ("xy", "zw")]
    else:
        numbers = count // 2
        every = _words("wide") if numbers == 1 else _words("wide.x") + _words("wide.y")
        value = f"bitcast<{seen}>(vec{count}<u32>({', '.join(every)}))"
        words = [f"bitcast<vec{count}<u32>>(value).{letter}" for letter in "xyzw"[:count]]
    array = "u64" if numbers == 1 else "vec2<u64>"
    lines = [
        f"var<storage, {found['access']}> {name}: array<{array}>;",
        f"fn load_{name}(i: u32) -> {seen} {{ let wide = {name}[i]; return {value}; }}",
    ]
    if found["store"]:
        pairs = [f"u64({low}) | (u64({high}) << 32u)" for low, high in zip(words[::2], words[1::2], strict=True)]
        wide = pairs[0] if numbers == 1 else f"{array}({', '.join(pairs)})"
        lines.append(f"fn store_{name}(i: u32, value: {seen}) {{ {name}[i] = {wide}; }}")
    return "\n".join(lines)


def _words(wide: str) -> list[str]:
    return [f"u32({wide})", f"u32({wide} >> 32u)"]
