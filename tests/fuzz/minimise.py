"""Makes a failing file small: of what was changed in its seed, only what it takes."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path

from fuzz.seeds import seeds

FOUND = Path(__file__).with_name("found")
TRIALS = 200
Hunk = tuple[int, int, bytes]  # from, to, what stands there instead


def minimised(kind: str, name: str, data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The seed with as few changes as still fail."""
    seed = seeds(kind)[name]
    hunks, tried = _hunks(seed, data), 0
    size = max(1, len(hunks) // 2)
    while hunks and tried < TRIALS:
        for start in range(0, len(hunks), size):
            fewer = hunks[:start] + hunks[start + size :]
            tried += 1
            if fails(_applied(seed, fewer)):
                hunks = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
        size = min(size, max(1, len(hunks)))
    smaller = _applied(seed, hunks)
    return smaller if fails(smaller) else data


def keep(kind: str, name: str, data: bytes) -> Path:
    """Into `found/`, from where the tests run it."""
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{kind}-{hashlib.sha256(data).hexdigest()[:10]}-{name}.z"
    path.write_bytes(zlib.compress(data, 9))
    return path


def kept(path: Path) -> tuple[str, str, bytes]:
    """The kind, the name and the data of a file in `found/`."""
    kind, _, name = path.name.removesuffix(".z").split("-", 2)
    return kind, name, zlib.decompress(path.read_bytes())


def _hunks(seed: bytes, data: bytes) -> list[Hunk]:
    if len(seed) != len(data):
        first = next((n for n, (a, b) in enumerate(zip(seed, data, strict=False)) if a != b), min(len(seed), len(data)))
        last = 0
        while last < min(len(seed), len(data)) - first and seed[-1 - last] == data[-1 - last]:
            last += 1
        return [(first, len(seed) - last, data[first : len(data) - last])]
    hunks: list[Hunk] = []
    for n, (a, b) in enumerate(zip(seed, data, strict=True)):
        if a == b:
            continue
        if hunks and hunks[-1][1] == n:
            start, _, new = hunks[-1]
            hunks[-1] = (start, n + 1, new + bytes([b]))
        else:
            hunks.append((n, n + 1, bytes([b])))
    return hunks


def _applied(seed: bytes, hunks: list[Hunk]) -> bytes:
    for start, end, new in reversed(hunks):
        seed = seed[:start] + new + seed[end:]
    return seed
