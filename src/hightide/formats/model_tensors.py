"""What a converter does to weights, done when they are read: rows in another order, one more, other types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from gguf import GGMLQuantizationType, quants

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import GgufTensor, block_size
from hightide.graph.blob import Blob, ComputedRows

Rows = Callable[[int, int], np.ndarray]  # (first row, rows) -> them
ELEMENTS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}  # what types without blocks are moved as


def read_rows(tensor: GgufTensor, first: int, count: int) -> np.ndarray:
    """Rows of a tensor in float32, [rows, width]."""
    width, size = row_size(tensor)
    data = np.frombuffer(tensor.data.region(first * size, count * size), np.uint8)
    if tensor.type == "F32":
        return data.view(np.float32).reshape(count, width)
    try:
        return quants.dequantize(data.reshape(count, size), GGMLQuantizationType[tensor.type]).reshape(count, width)
    except NotImplementedError:
        raise UnsupportedError(f"tensor {tensor.name} is {tensor.type}, which nothing is computed with") from None


def row_size(tensor: GgufTensor) -> tuple[int, int]:
    """(elements, bytes) of a row."""
    width = tensor.dims[-1] if tensor.dims else 1
    elements, size = block_size(tensor.type)
    return width, width // elements * size


def of_rows(tensor: GgufTensor, kind: str, dims: tuple[int, ...], rows: Rows) -> GgufTensor:
    """A tensor of another type or of other dims, whose rows of bytes are computed from this one."""
    made = GgufTensor(tensor.name, kind, dims, tensor.data)
    _, size = row_size(made)
    length = math.prod(dims[:-1]) * size

    def compute(first: int, count: int) -> bytes:
        return np.ascontiguousarray(rows(first, count)).tobytes()

    return replace(made, data=Blob(ComputedRows(max(size, 1), (tensor.data,), compute), 0, length))


def picked(tensor: GgufTensor, dims: tuple[int, ...], source: Callable[[np.ndarray], np.ndarray]) -> GgufTensor:
    """A tensor of these dims, whose row n is row `source(n)` of the given one; rows are those of the last dim."""
    _, size = row_size(tensor)

    def rows(first: int, count: int) -> np.ndarray:
        if not count:
            return np.empty((0, size), np.uint8)
        wanted = source(np.arange(first, first + count))
        least = int(wanted.min())
        data = tensor.data.region(least * size, (int(wanted.max()) + 1 - least) * size)
        return np.frombuffer(data, np.uint8).reshape(-1, size)[wanted - least]

    return of_rows(tensor, tensor.type, dims, rows)


def reordered(tensor: GgufTensor, order: np.ndarray) -> GgufTensor:
    """Row n is row `order[n]` of the tensor; a vector has rows of one element."""
    matrix = tensor if len(tensor.dims) > 1 else replace(tensor, dims=(*tensor.dims, 1))
    made = picked(matrix, (len(order), matrix.dims[-1]), lambda rows: order[rows])
    return replace(made, dims=(len(order), *tensor.dims[1:]))


def some_rows(tensor: GgufTensor, first: int, count: int, step: int = 1) -> GgufTensor:
    """Rows first, first + step, ... of each matrix of a tensor [..., rows, width]: `count` of them."""
    *outer, height, width = tensor.dims
    return picked(tensor, (*outer, count, width), lambda row: row // count * height + first + row % count * step)


def interleaved(tensor: GgufTensor, heads: int) -> GgufTensor:
    """Rows of q or k whose first and second halves of a head turn together, so that neighbours do."""
    count = tensor.dims[0] if tensor.dims else 0
    if count % (2 * heads):
        raise ProgramError(f"{tensor.name} has {count} rows, which are not {heads} heads")
    return reordered(tensor, np.arange(count).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1))


def transposed(tensor: GgufTensor) -> GgufTensor:
    """Each matrix [in, out] as [out, in], one at a time; blocks become float32."""
    if len(tensor.dims) < 2:
        raise ProgramError(f"{tensor.name} {list(tensor.dims)} is not a matrix")
    *outer, height, width = tensor.dims
    element = ELEMENTS.get(tensor.type)
    kind = tensor.type if element else "F32"

    def matrix(n: int) -> np.ndarray:
        if element is None:
            return read_rows(tensor, n * height, height)
        size = height * width * element().itemsize
        return np.frombuffer(tensor.data.region(n * size, size), element).reshape(height, width)

    def rows(first: int, count: int) -> np.ndarray:
        made, at = np.empty((count, height), element or np.float32), 0
        while at < count:
            n, row = divmod(first + at, width)
            taken = min(width - row, count - at)
            made[at : at + taken] = matrix(n)[:, row : row + taken].T
            at += taken
        return made

    return of_rows(tensor, kind, (*outer, width, height), rows)


def latent_parts(tensor: GgufTensor, heads: int, keys: int, values: int) -> tuple[GgufTensor, GgufTensor]:
    """What makes keys and values of a latent vector, with rows for both of each head, as the matrices of each head:
    for keys the other way round [heads, latent, keys], and for values [heads, values, latent]."""
    if len(tensor.dims) != 2 or tensor.dims[0] != heads * (keys + values):
        found = f"{tensor.name} {list(tensor.dims)}"
        raise ProgramError(f"{found} does not have {heads} heads of {keys} rows for keys and {values} for values")
    by_head = replace(tensor, dims=(heads, keys + values, tensor.dims[1]))
    return transposed(some_rows(by_head, 0, keys)), some_rows(by_head, keys, values)


def shifted(tensor: GgufTensor, by: float) -> GgufTensor:
    """`by` more, in float32."""
    return of_rows(tensor, "F32", tensor.dims, lambda first, count: read_rows(tensor, first, count) + np.float32(by))


def given(name: str, array: np.ndarray) -> GgufTensor:
    data = np.ascontiguousarray(array, np.float32)
    return GgufTensor(name, "F32", data.shape, Blob(data.tobytes(), 0, data.nbytes))


def stacked(name: str, tensors: Sequence[GgufTensor]) -> GgufTensor:
    """Tensors of the same type and dims as one with a dim more."""
    first = tensors[0]
    if any((tensor.type, tensor.dims) != (first.type, first.dims) for tensor in tensors):
        raise ProgramError(f"the tensors of {name} differ in type or dims")

    size, each = row_size(first)[1], math.prod(first.dims[:-1])

    def compute(at: int, count: int) -> bytes:
        pieces, end = [], at + count
        while at < end:
            n, row = divmod(at, each)
            taken = min(each - row, end - at)
            pieces.append(tensors[n].data.region(row * size, taken * size))
            at += taken
        return b"".join(pieces)

    source = ComputedRows(max(size, 1), tuple(tensor.data for tensor in tensors), compute)
    return GgufTensor(name, first.type, (len(tensors), *first.dims), Blob(source, 0, first.data.length * len(tensors)))
