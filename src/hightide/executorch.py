"""The API of `executorch.runtime`, on hightide: an existing script changes one import.

    from hightide.executorch import Runtime

    method = Runtime.get().load_program("model.pte").load_method("forward")
    outputs = method.execute([tokens, input_pos])

Torch tensors are returned where torch tensors were given, else NumPy arrays; torch is never imported here. Errors are
those of ExecuTorch: RuntimeError (which every HightideError is), and KeyError for a method that does not exist.
"""

from __future__ import annotations

import functools
import math
import sys
import tempfile
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.formats.program_file import MethodFile, TensorSpec
from hightide.formats.pte_values import DTYPES
from hightide.graph.values import ITEM_SIZE
from hightide.ops import REGISTRY
from hightide.pte import program as pte
from hightide.pte.delegates import DELEGATE_IDS

_TYPE_NAMES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "bool": "Bool"} | {
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
}  # fmt: skip
_SCALAR_TYPES = {name: code for code, name in DTYPES.items()}  # of ExecuTorch's ScalarType


class Verification(Enum):
    """Accepted for compatibility: hightide always checks a file whole."""

    Minimal = 0
    InternalConsistency = 1


class TensorInfo:
    """A tensor's shape and type."""

    def __init__(self, spec: TensorSpec) -> None:
        self._spec = spec

    def sizes(self) -> tuple[int, ...]:
        """The max dims."""
        return self._spec.dims

    def dtype(self) -> int:
        """The number of its ScalarType: 6 is float32, 4 is int64."""
        return _SCALAR_TYPES[self._spec.dtype]

    def is_memory_planned(self) -> bool:
        return self._spec.place is not None

    def nbytes(self) -> int:
        return math.prod(self._spec.dims) * ITEM_SIZE[self._spec.dtype]

    def __repr__(self) -> str:
        sizes, dtype = ", ".join(map(str, self.sizes())), _TYPE_NAMES.get(self._spec.dtype, self._spec.dtype)
        planned = self.is_memory_planned()
        return f"TensorInfo(sizes=[{sizes}], dtype={dtype}, is_memory_planned={planned}, nbytes={self.nbytes()})"


class MethodMeta:
    """What a method takes and gives."""

    def __init__(self, method: MethodFile) -> None:
        self._method = method

    def name(self) -> str:
        return self._method.name

    def num_inputs(self) -> int:
        return len(self._method.inputs)

    def num_outputs(self) -> int:
        return len(self._method.outputs)

    def num_attributes(self) -> int:
        return len(self._attributes())

    def input_tensor_meta(self, index: int) -> TensorInfo:
        return self._tensor(self._method.inputs, index, "input")

    def output_tensor_meta(self, index: int) -> TensorInfo:
        return self._tensor(self._method.outputs, index, "output")

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        return self._tensor(self._attributes(), index, "attribute")

    def __repr__(self) -> str:
        inputs, outputs = ([self._describe(id) for id in ids] for ids in (self._method.inputs, self._method.outputs))
        return (
            f"MethodMeta(name='{self.name()}', num_inputs={self.num_inputs()}, input_tensor_meta={inputs}, "
            f"num_outputs={self.num_outputs()}, output_tensor_meta={outputs})"
        )

    def _attributes(self) -> tuple[int, ...]:
        """Mutable buffers that kept their name."""
        named = enumerate(self._method.values)
        return tuple(id for id, v in named if isinstance(v, TensorSpec) and v.place is not None and v.name is not None)

    def _describe(self, id: int) -> str:
        spec = self._method.values[id]
        if isinstance(spec, TensorSpec):
            return repr(TensorInfo(spec))
        return {bool: "Bool", int: "Int", float: "Double", str: "String"}.get(type(spec), "None")

    def _tensor(self, ids: tuple[int, ...], index: int, what: str) -> TensorInfo:
        spec = self._method.values[ids[index]] if 0 <= index < len(ids) else None
        if not isinstance(spec, TensorSpec):
            reason = f"it is {spec!r}" if 0 <= index < len(ids) else f"there are {len(ids)}"
            raise IndexError(f"{what} {index} of {self.name()} is not a tensor: {reason}")
        return TensorInfo(spec)


class RuntimeMethod:
    """A loaded method; `Method` in ExecuTorch's API."""

    def __init__(self, method: pte.Method, meta: MethodMeta) -> None:
        self._method = method
        self._meta = meta
        file = method.program.file.methods[method.name]
        self._tensors = [isinstance(file.values[id], TensorSpec) for id in file.outputs]  # the others are numbers

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Outputs for these inputs: torch tensors if any input is one."""
        outputs = self._method(*inputs)
        results = [x if tensor else x.item() for x, tensor in zip(outputs, self._tensors, strict=True)]
        torch: Any = sys.modules.get("torch")
        if torch is not None and any(isinstance(x, torch.Tensor) for x in inputs):
            return [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in results]
        return results

    @property
    def metadata(self) -> MethodMeta:
        return self._meta


class RuntimeProgram:
    """A loaded program; `Program` in ExecuTorch's API."""

    def __init__(self, program: pte.Program) -> None:
        self._program = program
        self._methods: dict[str, RuntimeMethod] = {}

    @property
    def method_names(self) -> set[str]:
        return set(self._program.methods)

    def load_method(self, name: str) -> RuntimeMethod:
        if name not in self._program.methods:
            raise KeyError(name)
        if name not in self._methods:
            self._methods[name] = RuntimeMethod(self._program.method(name), self.metadata(name))
        return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it."""
        if method_name not in self._program.file.methods:
            raise InputError(f"the program has no method {method_name!r}; it has {', '.join(self._program.methods)}")
        return MethodMeta(self._program.file.methods[method_name])

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        raise UnsupportedError("hightide does not write ETDumps; use `hightide profile` instead")


Method, Program = RuntimeMethod, RuntimeProgram  # under ExecuTorch's own names


class BackendRegistry:
    """The backends whose delegates hightide runs."""

    @property
    def registered_backend_names(self) -> list[str]:
        return list(DELEGATE_IDS)

    def is_available(self, backend_name: str) -> bool:
        return backend_name in DELEGATE_IDS


class OperatorRegistry:
    """The ops that hightide knows."""

    @property
    def operator_names(self) -> set[str]:
        return set(REGISTRY)


class Runtime:
    """The entry: `Runtime.get()`."""

    def __init__(self) -> None:
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get() -> Runtime:
        return Runtime()

    def load_program(
        self,
        data: bytes | bytearray | BinaryIO | Path | str,
        *,
        verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: Path | str | None = None,
        device: str | int | None = None,
    ) -> RuntimeProgram:
        """Loads a program from a path, bytes or a file object. `device` is as in `hightide.load`."""
        if enable_etdump:
            raise UnsupportedError("hightide does not write ETDumps; load the program with enable_etdump=False")
        data_files = () if data_path is None else (data_path,)
        if isinstance(data, Path | str):
            return RuntimeProgram(pte.load(data, device, data_files))
        if not isinstance(data, bytes | bytearray):
            if not hasattr(data, "read"):
                raise TypeError(f"expected bytes, a path to a .pte file or a file object, got {type(data).__name__}")
            data = data.read()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "program.pte")  # weights are read when they are needed, so the bytes need a file
            path.write_bytes(data)
            return RuntimeProgram(pte.load(path, device, data_files))
