"""Programs on the references: the whole way from a file to outputs."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from schedules import PROGRAMS

import hightide
from hightide.formats.program_file import Delegate, DelegateCall, KernelCall, MethodFile
from hightide.formats.pte import read_program
from hightide.pte import program as program_module
from hightide.pte.program import Program, load

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")


def test_reset() -> None:
    program = load(PROGRAMS / "counter.pte", device="cpu")
    forward = program.method("forward")
    x = np.ones((2, 8), np.float32)
    assert [int(forward(x)[1][0]) for _ in range(3)] == [6, 7, 8]
    forward.reset()
    y, calls, total = forward(x)
    assert int(calls[0]) == 6
    np.testing.assert_allclose(total, np.maximum(y[-1], 0))


def test_reset_of_caches() -> None:
    forward = load(PROGRAMS / "llama_gqa.pte", device="cpu").method()
    first, *_ = forward([[5]], [3])
    forward([[1, 2, 3]], [0])
    assert not np.array_equal(forward([[5]], [3])[0], first)
    forward.reset()
    np.testing.assert_array_equal(forward([[5]], [3])[0], first)


def test_methods_and_metadata() -> None:
    program = load(PROGRAMS / "counter.pte", device="cpu")
    assert list(program.methods) == ["forward", "project", "get_max_seq_len", "get_scale", "use_cache", "get_ids"]
    assert repr(program.methods["project"]).startswith("(in0: float32[≤9, ≤8], in1: float32[≤9, ≤8]) -> ")
    assert program.metadata == {"get_max_seq_len": 33, "get_scale": 0.5, "use_cache": True, "get_ids": [1, 2, 3]}
    assert [int(x) for x in program.method("get_ids")()] == [1, 2, 3]
    assert program.method("project") is program.method("project")
    assert program.method("project").metadata is program.metadata


def test_names_of_an_llm() -> None:
    forward = load(PROGRAMS / "llama_gqa.pte", device="cpu").method()
    assert [(s.name, s.dims, s.dtype) for s in forward.inputs] == [
        ("tokens", (1, 47), "int64"),
        ("input_pos", (1,), "int64"),
    ]
    assert repr(forward) == "<Method forward(tokens: int64[1, ≤47], input_pos: int64[1]) -> float32[1, 160]>"


WRONG = [
    (([[1, 2]],), "takes 2 inputs"),
    (([1, 2], [0]), "input tokens has rank 1"),
    ((np.zeros((1, 2)), [0]), "input tokens is float64; the program takes int64"),
    (([[1] * 48], [0]), "dim 1 of input tokens is 48; the program takes at most 47"),
    (([[1, 160]], [0]), "token id 160"),
    (([[-1]], [0]), "token id -1"),
    (([[1, 2]], [95]), "96"),
    (([[1]], [2**40]), "input input_pos has 1099511627776"),
    (([[2**33]], [0]), "token id 8589934592"),
    (([[1]], [0, 1]), "input_pos is \\[2\\]; the program takes exactly \\[1\\]"),
]


@pytest.mark.parametrize(("inputs", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_inputs_change_nothing(inputs: tuple[object, ...], message: str) -> None:
    forward = load(PROGRAMS / "llama_gqa.pte", device="cpu").method()
    forward([[1, 2, 3]], [0])
    want = forward([[4]], [3])[0]
    with pytest.raises(hightide.InputError, match=message):
        forward(*inputs)
    np.testing.assert_array_equal(forward([[4]], [3])[0], want)


def test_unknown_method() -> None:
    with pytest.raises(hightide.InputError, match="has no method 'backward'; it has forward"):
        load(PROGRAMS / "llama_gqa.pte", device="cpu").method("backward")


def test_kernels_outside_delegates_are_reported_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = load(PROGRAMS / "partial.pte", device="cpu")
        assert not caught
        program.method()
        program.method()
    assert [str(w.message) for w in caught] == [
        "method forward runs outside its delegates, on NumPy: aten::topk.values, aten::cumsum.out"
    ]


def test_missing_kernels_and_backends_are_refused_at_load() -> None:
    file = read_program(PROGRAMS / "portable.pte")
    forward = file.methods["forward"]
    delegate = Delegate("XnnpackBackend", file.methods["forward"].values[0].constant, {})  # type: ignore[union-attr, arg-type]
    nothing = KernelCall("aten::nothing.out", (2, 3, 3))
    instructions = (nothing, DelegateCall(0, (2, 3)), KernelCall("a::b", (2, 3)), nothing)
    file.methods["forward"] = MethodFile(
        "forward", forward.values, forward.inputs, forward.outputs, instructions, (delegate,)
    )
    with pytest.raises(hightide.UnsupportedError) as error:
        Program(file, "cpu")
    assert str(error.value) == (
        "portable.pte needs 2 ops and one backend that hightide does not support: "
        "aten::nothing.out (forward, instructions 0 and 3), a::b (forward, instruction 2), "
        "the backend XnnpackBackend (forward, delegate 0)"
    )


def test_external_data() -> None:
    folder = PROGRAMS / "external"
    with pytest.raises(hightide.ProgramError, match=r"pass its \.ptd file"):
        load(folder / "external.pte", device="cpu")
    load(folder / "external.pte", device="cpu", data=folder / "external.ptd").method()


def test_device_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")
    assert load(PROGRAMS / "two_dims.pte").device == "cpu"
    assert load(PROGRAMS / "two_dims.pte", device="0").device == "0"


def test_no_adapter_falls_back_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wgpu")
    import hightide.gpu.device

    monkeypatch.delenv("HIGHTIDE_DEVICE", raising=False)
    monkeypatch.setattr(hightide.gpu.device, "adapters", lambda: ())
    with pytest.warns(UserWarning, match="no WebGPU adapter was found: programs run on the NumPy references"):
        forward = load(PROGRAMS / "two_dims.pte").method()
    assert forward(np.zeros((1, 1, 16), np.float32))[0].shape == (1, 1, 16)
    with pytest.raises(hightide.DeviceError):
        load(PROGRAMS / "two_dims.pte", device="nothing like it").method()


def test_import_is_light() -> None:
    code = "import hightide, sys; hightide.load; assert 'wgpu' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"import sys; sys.path = {sys.path!r}; {code}"], check=True)
    assert hightide.load is program_module.load
    assert isinstance(hightide.__version__, str) and "load" in dir(hightide)
