"""Constants of an XNNPACK graph as hightide's ops take them: floats, in another order, computed when they are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from hightide.errors import UnsupportedError
from hightide.formats.xnngraph import PerChannel, PerGroup, PerTensor, XnnValue
from hightide.graph.blob import AnyBlob, Blob, Computed
from hightide.graph.values import Dims

FLOATS = {"fp32": "float32", "fp16": "float16"}
CODES = {"qint8": "int8", "quint8": "uint8", "qint32": "int32", "qcint8": "int8", "qcint32": "int32"}
NIBBLES = ("qcint4", "qbint4")
Arrange = Callable[[np.ndarray], np.ndarray]


def float_type(value: XnnValue) -> str:
    """What a value is computed in: codes are held as the floats that they stand for."""
    if value.datatype in FLOATS:
        return FLOATS[value.datatype]
    if value.datatype in CODES or value.datatype in NIBBLES or value.datatype == "qdint8":
        return "float32"
    raise UnsupportedError(f"tensors of {value.datatype} are not supported")


def constant_blob(value: XnnValue, dims: Dims, arrange: Arrange | None = None) -> AnyBlob:
    """A constant's floats, arranged to be `dims`; the file's own bytes where nothing is to be done."""
    assert value.constant is not None
    dtype = float_type(value)
    if value.datatype in FLOATS and arrange is None:
        return value.constant
    parts = (value.constant, *_scales(value))
    return Computed(prod(dims) * np.dtype(dtype).itemsize, parts, partial(_bytes, value, arrange))


def row_scales(value: XnnValue) -> AnyBlob:
    """The float32 scales of a 4-bit weight [N, K], as [groups of a row, N]."""
    scaling, rows = value.scaling, value.dims[0]
    if isinstance(scaling, PerChannel) and scaling.axis == 0:
        return scaling.scales
    if not isinstance(scaling, PerGroup):
        raise UnsupportedError("a 4-bit weight without a scale for each row or group is not supported")
    groups = value.dims[1] // scaling.group

    def compute() -> bytes:
        return np.ascontiguousarray(_bfloats(scaling.scales).reshape(rows, groups).T).tobytes()

    return Computed(rows * groups * 4, (scaling.scales,), compute)


def check_constant(value: XnnValue) -> None:
    """Refuse codes whose scales hightide cannot read."""
    if value.datatype not in FLOATS and value.datatype not in CODES and value.datatype not in NIBBLES:
        raise UnsupportedError(f"a constant of {value.datatype} is not supported")
    fits = {
        "qint8": PerTensor,
        "quint8": PerTensor,
        "qint32": PerTensor,
        "qcint8": PerChannel,
        "qcint32": PerChannel,
        "qcint4": PerChannel,
        "qbint4": PerGroup,
    }.get(value.datatype)
    if fits is not None and not isinstance(value.scaling, fits):
        raise UnsupportedError(f"a {value.datatype} tensor with {type(value.scaling).__name__} scales is not supported")
    if value.datatype in NIBBLES and len(value.dims) != 2:
        raise UnsupportedError(f"4-bit codes of {list(value.dims)} are not supported: they are not a matrix")


def _bytes(value: XnnValue, arrange: Arrange | None) -> bytes:
    array = _floats(value)
    return np.ascontiguousarray(arrange(array) if arrange else array).tobytes()


def _floats(value: XnnValue) -> np.ndarray:
    """What a constant stands for, in the dims of the file."""
    assert value.constant is not None
    data, scaling, dims = value.constant.view(), value.scaling, value.dims
    if value.datatype in FLOATS:
        return np.frombuffer(data, FLOATS[value.datatype]).reshape(dims)
    if value.datatype in NIBBLES:
        packed = np.frombuffer(data, np.uint8).reshape(dims[0], -(-dims[1] // 2))
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(dims[0], 2 * packed.shape[1])
        codes = nibbles[:, : dims[1]].astype(np.float32) - 8
    else:
        codes = np.frombuffer(data, CODES[value.datatype]).reshape(dims)
    match scaling:
        case PerTensor():
            return ((codes - np.float64(scaling.zero)) * scaling.scale).astype(np.float32)
        case PerChannel():
            scales = np.frombuffer(scaling.scales.view(), np.float32)
            along = scales.reshape([-1 if n == scaling.axis else 1 for n in range(len(dims))])
            return (codes * along.astype(np.float64)).astype(np.float32)
        case PerGroup():
            groups = _bfloats(scaling.scales).reshape(dims[0], dims[1] // scaling.group)
            return np.asarray(codes * np.repeat(groups, scaling.group, axis=1), np.float32)
        case _:
            raise UnsupportedError(f"a constant of {value.datatype} without scales is not supported")


def _bfloats(blob: Blob) -> np.ndarray:
    """bfloat16 numbers are the upper halves of float32 ones."""
    return (np.frombuffer(blob.view(), np.uint16).astype(np.uint32) << 16).view(np.float32)


def _scales(value: XnnValue) -> tuple[Blob, ...]:
    return (value.scaling.scales,) if isinstance(value.scaling, PerChannel | PerGroup) else ()
