"""Constants to the GPU, a chunk at a time, so that host memory stays small however large the file."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.errors import ProgramError
from hightide.formats.blob import Blob
from hightide.gpu.device import Device
from hightide.graph.values import ITEM_SIZE, TensorValue
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.contract import GPU_TYPE

CHUNK_ITEMS = 2 << 20
CHUNK_BYTES = 4 << 20


def upload(device: Device, buffer: Any, value: TensorValue) -> None:
    """Write a constant's data into its buffer as the GPU holds it (int64 narrowed, halves widened)."""
    blob = value.constant
    assert blob is not None
    if value.dtype in BLOCK_TYPES:
        _upload_blocks(device, buffer, value, blob)
        return
    size = ITEM_SIZE[value.dtype]
    count = value.max_bytes // size
    at = 0
    for start in range(0, count, CHUNK_ITEMS):
        items = min(CHUNK_ITEMS, count - start)
        data = _on_gpu(Blob(blob.source, blob.offset + start * size, items * size), value)
        device.write(buffer, at, data)
        at += data.nbytes
        device.flush()
    blob.forget()


def _upload_blocks(device: Device, buffer: Any, value: TensorValue, blob: Blob) -> None:
    """Sort the blocks of a GGUF type into planes, some thousands at a time."""
    kind = BLOCK_TYPES[value.dtype]
    starts = kind.offsets(value.dims)
    count = blob.length // kind.bytes
    step = CHUNK_BYTES // kind.bytes // 16 * 16  # whole words in every plane
    for first in range(0, count, step):
        blocks = np.frombuffer(
            Blob(blob.source, blob.offset + first * kind.bytes, min(step, count - first) * kind.bytes).view(), np.uint8
        ).reshape(-1, kind.bytes)
        for start, size, plane in zip(starts, kind.planes, kind.pack(blocks), strict=False):
            data = np.ascontiguousarray(plane).reshape(-1)
            device.write(buffer, start + first * size, np.pad(data, (0, -data.size % 4)) if data.size % 4 else data)
        device.flush()
    blob.forget()


def _on_gpu(blob: Blob, value: TensorValue) -> np.ndarray:
    kind = GPU_TYPE[value.dtype]
    if kind == "u8":
        raw = np.frombuffer(blob.view(), np.uint8)
        return np.pad(raw, (0, -raw.size % 4)) if raw.size % 4 else raw
    array = np.frombuffer(blob.view(), value.dtype)
    if value.dtype == "int64":
        narrow = array.astype(np.int32)
        if (narrow != array).any():
            raise ProgramError(f"constant tensor {value.id} has integers that do not fit 32 bits")
        return narrow
    return array.astype(np.float32, copy=False) if kind == "f32" else array
