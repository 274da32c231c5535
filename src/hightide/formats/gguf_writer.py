"""GGUF files written from what presents itself as one, a tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from hightide.errors import UnsupportedError
from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.formats.model_tensors import of_rows, read_rows, row_size

# Fields whose numbers are floats, also where a config has 10000 for 10000.0: readers insist on the type.
FLOAT_ENDS = ("freq_base", "freq_base_swa", "factor", "_epsilon", "softcapping", "_scale", "beta_fast", "beta_slow")


def write_gguf(file: GgufFile, path: Path, tell: Callable[[int, int], None] | None = None) -> None:
    """Vectors become float32, as llama.cpp wants them; all else is written as it is. `tell` hears (done, all) bytes."""
    writer = GGUFWriter(path, file.architecture)
    try:
        add_fields(writer, {key: value for key, value in file.metadata.items() if key != "general.architecture"})
        tensors = [_vector_in_float32(tensor) for tensor in file.tensors.values()]
        for tensor in tensors:
            dims = (*tensor.dims[:-1], row_size(tensor)[1])  # of bytes
            kind = GGMLQuantizationType[tensor.type]
            writer.add_tensor_info(tensor.name, dims, np.dtype(np.uint8), tensor.data.length, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        done, total = 0, sum(tensor.data.length for tensor in tensors)
        for tensor in tensors:
            writer.write_tensor_data(np.frombuffer(tensor.data.view(), np.uint8))
            done += tensor.data.length
            if tell is not None:
                tell(done, total)
    finally:
        writer.close()


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


def _vector_in_float32(tensor: GgufTensor) -> GgufTensor:
    if len(tensor.dims) > 1 or tensor.type == "F32":
        return tensor
    return of_rows(tensor, "F32", tensor.dims, lambda first, count: read_rows(tensor, first, count))
