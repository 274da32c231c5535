"""Uploads constants to the GPU in chunks, so that host memory stays small however large the file is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hightide.errors import ProgramError
from hightide.gpu.device import Device
from hightide.graph.blob import AnyBlob
from hightide.graph.values import ITEM_SIZE, TensorValue
from hightide.ops.blocks.layout import BLOCK_TYPES, table_of
from hightide.ops.storage import GPU_TYPE
from hightide.runtime.words import whole_words

CHUNK_ITEMS = 2 << 20
CHUNK_BYTES = 4 << 20


def upload(device: Device, buffer: Any, value: TensorValue) -> None:
    """Write a constant's data into its buffer."""
    for at, data in pieces(value):
        device.write(buffer, at, data)
        device.flush()
        del data  # before the next chunk is read


def pieces(value: TensorValue) -> Iterator[tuple[int, np.ndarray]]:
    """A constant's data as the GPU holds it (int64 narrowed): (offset in bytes, whole words), some at a time."""
    blob = value.constant
    assert blob is not None
    if value.dtype in BLOCK_TYPES:
        yield from _planes(value, blob)
        return
    size = ITEM_SIZE[value.stored_dtype]
    count = math.prod(value.dims)
    at = 0
    for start in range(0, count, CHUNK_ITEMS):
        items = min(CHUNK_ITEMS, count - start)
        data = _on_gpu(blob.region(start * size, items * size), value)
        yield at, data
        at += data.nbytes
        del data  # before the next chunk is read


def _planes(value: TensorValue, blob: AnyBlob) -> Iterator[tuple[int, np.ndarray]]:
    """The blocks of a GGUF type sorted into planes, some thousands at a time."""
    kind = BLOCK_TYPES[value.dtype]
    starts = kind.offsets(value.dims)
    row_blocks = value.dims[-1] // kind.elements
    rows = blob.length // kind.bytes // max(row_blocks, 1)
    # Whole words in every plane.
    step = max(CHUNK_BYTES // (kind.bytes * row_blocks) // 16, 1) * 16 if row_blocks else 16
    for first in range(0, rows, step):
        blocks = np.frombuffer(
            blob.region(first * row_blocks * kind.bytes, min(step, rows - first) * row_blocks * kind.bytes), np.uint8
        ).reshape(-1, kind.bytes)
        for start, size, plane in zip(starts, kind.planes, kind.pack_rows(blocks, row_blocks), strict=False):
            yield start + first * row_blocks * size, whole_words(plane)
        del blocks, plane
    if table := table_of(kind.name):
        yield starts[-2], np.frombuffer(table, np.uint8)


def _on_gpu(data: memoryview, value: TensorValue) -> np.ndarray:
    kind = GPU_TYPE[value.dtype]
    if kind == "u8":
        return whole_words(np.frombuffer(data, np.uint8))
    array = np.frombuffer(data, value.stored_dtype)
    if value.dtype == "int64":
        narrow = array.astype(np.int32)
        if (narrow != array).any():
            raise ProgramError(f"constant tensor {value.id} has integers that do not fit 32 bits")
        return narrow
    return whole_words(array.astype(value.dtype, copy=False))
