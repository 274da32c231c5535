"""Numbers for people: sizes in bytes, counts of operations and of things."""

from __future__ import annotations

_PREFIXES = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def size(nbytes: int) -> str:
    """1,234,567 as `1.23 MB`."""
    return f"{_scaled(nbytes)}B"


def binary(nbytes: int) -> str:
    """1,234,567 as `1.2 MiB`: what memory is counted in."""
    for power, prefix in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if nbytes >= 1 << power:
            return f"{nbytes / (1 << power):.1f} {prefix}B"
    return f"{nbytes} B"


def count(number: int) -> str:
    """1,234,567 as `1.23 M`."""
    return _scaled(number).rstrip()


def counted(number: int, noun: str) -> str:
    """`1 level`, `2 levels`, `3 dispatches`"""
    return f"{number} {noun}" + ("" if number == 1 else "es" if noun.endswith("ch") else "s")


def _scaled(number: int) -> str:
    for step, prefix in _PREFIXES:
        if number >= step:
            value = number / step
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {prefix}"
    return f"{number} "
