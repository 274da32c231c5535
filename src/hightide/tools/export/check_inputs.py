"""The sizes at which a program is checked, and random inputs there, alike to the example inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Level = dict[str, int]  # symbol -> its size


def check_levels(ranges: Mapping[str, tuple[int, int]]) -> list[Level]:
    """The largest sizes first, so that what a large call leaves behind would show in the small ones after it."""
    if not ranges:
        return [{}]
    levels = [
        {name: most for name, (_, most) in ranges.items()},
        {name: least for name, (least, _) in ranges.items()},
        {name: _odd(least, most) for name, (least, most) in ranges.items()},
        {name: (least + most) // 2 for name, (least, most) in ranges.items()},
    ]
    if len(ranges) > 1:  # sizes that are not all large or all small
        levels.append({name: bounds[n % 2] for n, (name, bounds) in enumerate(ranges.items())})
    return [level for n, level in enumerate(levels) if level not in levels[:n]]


def level_name(level: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in level.items()) or "as the example"


def random_like(example: np.ndarray, dims: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Values within the range of the example's; floats that are all the same there are drawn from 1 around them."""
    if not example.size:
        return np.zeros(dims, example.dtype)
    if example.dtype.kind == "f":
        if not np.isfinite(example).all():  # a mask with -inf: any of its own values
            return rng.choice(example.reshape(-1), dims)
        low, high = float(example.min()), float(example.max())
        low, high = (low - 1, high + 1) if low == high else (low, high)
        return rng.uniform(low, high, dims).astype(example.dtype)
    drawn = rng.integers(int(example.min()), int(example.max()) + 1, dims)
    return drawn.astype(example.dtype)


def _odd(least: int, most: int) -> int:
    """An odd size about a third of the way."""
    size = (least + (most - least) // 3) | 1
    return size if size <= most else max(least, size - 2)
