"""`hightide.executorch`, beside what `executorch.runtime` 1.5.1 gives for the same programs."""

from __future__ import annotations

import io
import sys
from types import ModuleType

import numpy as np
import pytest
from schedules import PROGRAMS, relative_error, steps

from hightide.errors import ProgramError, UnsupportedError
from hightide.executorch import Runtime, Verification

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")


def test_execute() -> None:
    program = Runtime.get().load_program(PROGRAMS / "portable.pte", verification=Verification.Minimal)
    assert program.method_names == {"forward"}
    method = program.load_method("forward")
    assert program.load_method("forward") is method
    for _, inputs, outputs in steps("portable"):
        got = method.execute(inputs)
        assert isinstance(got, list)
        assert all(relative_error(g, w) < 1e-5 for g, w in zip(got, outputs, strict=True))


def test_metadata_is_the_same() -> None:
    program = Runtime.get().load_program(str(PROGRAMS / "portable.pte"))
    meta = program.load_method("forward").metadata
    assert (meta.name(), meta.num_inputs(), meta.num_outputs(), meta.num_attributes()) == ("forward", 1, 2, 0)
    info = meta.output_tensor_meta(1)
    assert (info.sizes(), info.dtype(), info.nbytes(), info.is_memory_planned()) == ((33,), 4, 264, True)
    assert repr(meta) == (
        "MethodMeta(name='forward', num_inputs=1, input_tensor_meta=['TensorInfo(sizes=[33, 10], dtype=Float, "
        "is_memory_planned=True, nbytes=1320)'], num_outputs=2, output_tensor_meta=['TensorInfo(sizes=[15, 33], "
        "dtype=Float, is_memory_planned=True, nbytes=1980)', 'TensorInfo(sizes=[33], dtype=Long, "
        "is_memory_planned=True, nbytes=264)'])"
    )
    with pytest.raises(IndexError):
        meta.input_tensor_meta(5)


def test_numbers() -> None:
    program = Runtime.get().load_program(PROGRAMS / "counter.pte")
    assert program.load_method("get_ids").execute([]) == [1, 2, 3]
    assert program.load_method("use_cache").execute([]) == [True]
    meta = program.metadata("get_ids")
    assert repr(meta).endswith("num_outputs=3, output_tensor_meta=['Int', 'Int', 'Int'])")
    assert "['Double']" in repr(program.metadata("get_scale")) and "['Bool']" in repr(program.metadata("use_cache"))
    with pytest.raises(IndexError):
        meta.output_tensor_meta(0)
    with pytest.raises(KeyError):
        program.load_method("nothing")


def test_bytes_and_file_objects() -> None:
    data = (PROGRAMS / "two_dims.pte").read_bytes()
    _, inputs, outputs = next(steps("two_dims"))
    for source in (data, bytearray(data), io.BytesIO(data)):
        method = Runtime.get().load_program(source).load_method("forward")
        assert relative_error(method.execute(inputs)[0], outputs[0]) < 1e-5
    with pytest.raises(TypeError, match="got int"):
        Runtime.get().load_program(5)  # type: ignore[arg-type]


def test_data_path() -> None:
    folder = PROGRAMS / "external"
    with pytest.raises(ProgramError, match=r"pass its \.ptd file"):
        Runtime.get().load_program(folder / "external.pte")
    program = Runtime.get().load_program(folder / "external.pte", data_path=folder / "external.ptd")
    (y,) = program.load_method("forward").execute([np.ones((1, 3), np.float32)])
    # x @ weight.T + bias + count, as in make_external.py: all three come from the data file or count up from 7.
    assert y.tolist() == [[3 + 10 + 8, 12 + 20 + 8]]


def test_etdump_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not write ETDumps"):
        Runtime.get().load_program(PROGRAMS / "portable.pte", enable_etdump=True)


def test_registries() -> None:
    runtime = Runtime.get()
    assert runtime is Runtime.get()
    assert runtime.backend_registry.is_available("VulkanBackend")
    assert runtime.backend_registry.is_available("XnnpackBackend")
    assert not runtime.backend_registry.is_available("CoreMLBackend")
    assert "VulkanBackend" in runtime.backend_registry.registered_backend_names
    assert "aten.add.Tensor" in runtime.operator_registry.operator_names


class FakeTensor:
    """As much of a torch.Tensor as is used; torch itself is not needed for the tests."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def detach(self) -> FakeTensor:
        return self

    cpu = detach

    def numpy(self) -> np.ndarray:
        return self.array


def test_torch_in_torch_out(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.Tensor, torch.from_numpy = FakeTensor, FakeTensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    method = Runtime.get().load_program(PROGRAMS / "two_dims.pte").load_method("forward")
    x = np.zeros((1, 1, 16), np.float32)
    assert isinstance(method.execute([FakeTensor(x)])[0], FakeTensor)
    assert isinstance(method.execute([x])[0], np.ndarray)
