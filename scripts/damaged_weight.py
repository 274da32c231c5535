"""Copies a program with one weight damaged: the first scales of its N-th 4-bit linear are ten times as large.

python scripts/damaged_weight.py model.pte damaged.pte 2
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from hightide.graph.values import TensorValue
from hightide.tools.opened_file import open_file


def damage(data: bytes, stored: bytes) -> bytes:
    """`data` with the float32s that are `stored` in it, the first four of them ten times as large."""
    scales = np.frombuffer(stored, np.float32).copy()
    scales[:4] *= 10
    at = data.index(stored)
    return data[:at] + scales.tobytes() + data[at + len(stored) :]


def scales_of(path: Path, number: int) -> bytes:
    graph = open_file(path).parts[0].graph
    call = [c for c in graph.calls if c.name == "et_vk.linear_q4gsw.default"][number]
    sources = {c.out: c.args["x"] for c in graph.calls if c.name == "et_vk.prepack.default"}
    value = graph.values[sources.get(call.args["scales"], call.args["scales"])]
    assert isinstance(value, TensorValue) and value.constant is not None
    return bytes(value.constant.view())


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.write_bytes(damage(source.read_bytes(), scales_of(source, int(sys.argv[3]))))
