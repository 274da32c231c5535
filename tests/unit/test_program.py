"""Programs on the references: the whole way from a file to outputs."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from schedules import PROGRAMS

import hightide
from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.formats.program_file import Delegate, MethodFile
from hightide.formats.pte import read_program
from hightide.gpu.device import Device
from hightide.ops import REGISTRY
from hightide.planning.planner import Planner
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
        "method forward runs outside its delegates, on NumPy: aten::_to_copy.out, aten::topk.values, aten::cumsum.out"
    ]


def test_missing_kernels_and_backends_are_refused_at_load() -> None:
    file = read_program(PROGRAMS / "portable.pte")
    forward = file.methods["forward"]
    delegate = Delegate("CoreMLBackend", file.methods["forward"].values[0].constant, {})  # type: ignore[union-attr, arg-type]
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
        "the backend CoreMLBackend (forward, delegate 0); export it with VulkanPartitioner, or without a partitioner"
    )


def test_external_data() -> None:
    folder = PROGRAMS / "external"
    with pytest.raises(hightide.ProgramError, match=r"pass its \.ptd file"):
        load(folder / "external.pte", device="cpu")
    forward = load(folder / "external.pte", device="cpu", data=folder / "external.ptd").method()
    assert forward([[1.0, 1.0, 1.0]])[0].tolist() == [[21, 40]]  # see make_external.py


# ---- when things are planned and refused


def test_a_program_is_planned_once_when_its_method_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    plan_max = Planner.plan_max
    monkeypatch.setattr(Planner, "plan_max", lambda self, env: planned.append(1) or plan_max(self, env))
    program = load(PROGRAMS / "llama_gqa.pte", device="cpu")
    assert not planned
    program.method()
    program.method()
    assert len(planned) == 1


def test_what_an_op_refuses_is_said_with_the_file_and_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load(PROGRAMS / "two_dims.pte", device="cpu")
    graph = program.single_graph("forward")
    assert graph is not None
    call = graph.calls[0]

    def refuse(self: object, ctx: object) -> None:
        raise hightide.UnsupportedError("there is no form for this")

    monkeypatch.setattr(REGISTRY[call.name], "outputs", refuse)
    with pytest.raises(hightide.UnsupportedError) as error:
        program.method()
    assert str(error.value) == f"two_dims.pte, method forward: {call}: there is no form for this"


def test_a_call_that_does_not_fit_its_op_is_refused_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def misfit(file: object) -> None:
        raise hightide.UnsupportedError("op 3 (aten.add.Tensor): argument alpha is missing")

    monkeypatch.setattr(program_module, "bind_graph", misfit)
    with pytest.raises(hightide.UnsupportedError) as error:
        load(PROGRAMS / "two_dims.pte", device="cpu")
    assert str(error.value) == ("two_dims.pte (forward, delegate 0): op 3 (aten.add.Tensor): argument alpha is missing")


# ---- inputs by name


def test_inputs_by_name() -> None:
    forward = load(PROGRAMS / "llama_gqa.pte", device="cpu").method()
    (want,) = forward([[1, 2]], [0])
    for given, named in [((), {"input_pos": [0], "tokens": [[1, 2]]}), (([[1, 2]],), {"input_pos": [0]})]:
        np.testing.assert_array_equal(forward(*given, **named)[0], want)
        assert str(forward.explain(*given, **named)) == str(forward.explain([[1, 2]], [0]))


NAMED: list[tuple[tuple[object, ...], dict[str, object], str]] = [
    (([[1]],), {"position": [0]}, "method forward has no input 'position'; it takes tokens, input_pos"),
    (([[1]],), {"tokens": [[1]], "input_pos": [0]}, "input tokens is given twice, by position and by name"),
    (([[1]], [0], [0]), {"input_pos": [0]}, "input input_pos is given twice, by position and by name"),
    ((), {"tokens": [[1]]}, "method forward was called without input_pos"),
]


@pytest.mark.parametrize("call", ["__call__", "explain"])
@pytest.mark.parametrize(("inputs", "named", "message"), NAMED, ids=[message for *_, message in NAMED])
def test_wrong_names(call: str, inputs: tuple[object, ...], named: dict[str, object], message: str) -> None:
    forward = load(PROGRAMS / "llama_gqa.pte", device="cpu").method()
    with pytest.raises(hightide.InputError) as error:
        getattr(forward, call)(*inputs, **named)
    assert str(error.value) == message


# ---- routes


def test_routes_are_checked_when_a_program_is_loaded() -> None:
    program = load(PROGRAMS / "llama_gqa.pte", device="cpu", routes={"linear.gemv": "split"})
    assert program.routes == {"linear.gemv": "split"}
    with pytest.raises(hightide.InputError, match=r"no choice of routes 'linear\.gem'; the choices are .*gemv"):
        load(PROGRAMS / "llama_gqa.pte", device="cpu", routes={"linear.gem": "split"})
    with pytest.raises(hightide.InputError, match=r"linear\.gemv has no route 'x'; its routes are .*split"):
        load(PROGRAMS / "llama_gqa.pte", device="cpu", routes={"linear.gemv": "x"})


def test_routes_that_are_forced_are_taken(device: Device) -> None:
    taken = set()
    for option in ("split", "registers"):
        with load(PROGRAMS / "llama_gqa.pte", routes={"linear.gemv": option}) as program:
            explanation = program.method().explain(tokens=[[1]], input_pos=[0])
            taken.add(tuple(row.route for row in explanation.rows))
    assert len(taken) == 2


# ---- closing


def test_a_closed_method_is_built_again() -> None:
    program = load(PROGRAMS / "llama_gqa.pte", device="cpu")
    with program.method() as forward:
        (want,) = forward([[5]], [0])
    assert repr(forward).endswith("(closed)>")
    for call in (lambda: forward([[5]], [0]), lambda: forward.explain([[5]], [0]), forward.reset):
        with pytest.raises(hightide.HightideError) as error:
            call()
        assert str(error.value) == "method forward of llama_gqa.pte is closed; Program.method builds it again"
    forward.close()
    again = program.method()
    assert again is not forward
    np.testing.assert_array_equal(again([[5]], [0])[0], want)


def test_a_closed_program_is_refused() -> None:
    with load(PROGRAMS / "counter.pte", device="cpu") as program:
        forward, project = program.method("forward"), program.method("project")
    assert forward.closed and project.closed
    assert repr(program).startswith("<Program counter.pte: forward, project, ") and repr(program).endswith("(closed)>")
    for call in (program.method, lambda: program.delegate_graph("forward", 0)):
        with pytest.raises(hightide.HightideError, match=r"counter\.pte is closed; load it again to use it"):
            call()
    program.close()
    assert program.metadata["get_max_seq_len"] == 33  # read from the file, and so still there


def test_device_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")
    assert load(PROGRAMS / "two_dims.pte").device == "cpu"
    monkeypatch.setenv("HIGHTIDE_DEVICE", "no such device")
    assert load(PROGRAMS / "two_dims.pte", device="cpu").device == "cpu"
    with pytest.raises(hightide.DeviceError, match="no such device"):
        load(PROGRAMS / "two_dims.pte")


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
