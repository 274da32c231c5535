"""GGUF files written from what presents itself as one, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from hightide.errors import UnsupportedError
from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.formats.model_tensors import of_rows, read_rows, row_size

# Fields whose numbers are floats, also where a config has 10000 for 10000.0: readers insist on the type.
FLOAT_ENDS = (
    *("freq_base", "freq_base_swa", "factor", "_epsilon", "softcapping", "_scale"),
    *("beta_fast", "beta_slow", "log_multiplier"),
)
PIECE = 32 << 20  # bytes of a tensor that are in memory: one of all experts of a layer can have gigabytes


def write_gguf(file: GgufFile, path: Path, tell: Callable[[int, int], None] | None = None) -> None:
    """Vectors, biases and routers become float32, as llama.cpp wants them; all else is written as it is.

    `tell` hears (done, all) bytes.
    """
    writer = GGUFWriter(path, file.architecture)
    try:
        add_fields(writer, {key: value for key, value in file.metadata.items() if key != "general.architecture"})
        tensors = [_small_in_float32(tensor) for tensor in file.tensors.values()]
        for tensor in tensors:
            dims = (*tensor.dims[:-1], row_size(tensor)[1])  # of bytes
            kind = GGMLQuantizationType[tensor.type]
            writer.add_tensor_info(tensor.name, dims, np.dtype(np.uint8), tensor.data.length, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        done, total = 0, sum(tensor.data.length for tensor in tensors)
        for tensor in tensors:
            writer.write_tensor_data(cast(Any, _InPieces(tensor)))
            done += tensor.data.length
            if tell is not None:
                tell(done, total)
    finally:
        writer.close()


@dataclass(frozen=True)
class _InPieces:
    """A tensor as the writer wants to see an array: it asks for its size and to be written."""

    tensor: GgufTensor

    @property
    def nbytes(self) -> int:
        return self.tensor.data.length

    def tofile(self, file: IO[bytes]) -> None:
        row = max(row_size(self.tensor)[1], 1)
        step = max(PIECE // row, 1) * row
        for start in range(0, self.nbytes, step):
            file.write(self.tensor.data.region(start, min(step, self.nbytes - start)))


def add_fields(writer: GGUFWriter, fields: Mapping[str, Any]) -> None:
    for key, value in fields.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float) or (isinstance(value, int) and key.endswith(FLOAT_ENDS)):
            writer.add_float32(key, float(value))
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            raise UnsupportedError(f"the field {key} is {value!r}, which GGUF has no place for")


def _small_in_float32(tensor: GgufTensor) -> GgufTensor:
    is_matrix = len(tensor.dims) > 1 and tensor.name.endswith(".weight") and ".ffn_gate_inp" not in tensor.name
    if is_matrix or tensor.type == "F32":
        return tensor
    return of_rows(tensor, "F32", tensor.dims, lambda first, count: read_rows(tensor, first, count))
