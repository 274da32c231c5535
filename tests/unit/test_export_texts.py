"""`hightide export` of torch modules, as far as it goes without torch: what varies, who makes the model, the report."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schedules import INDEX, PROGRAMS

import hightide as package
from hightide.errors import ExportError, HightideError, InputError, ProgramError, UnsupportedError
from hightide.exporter import exporting
from hightide.formats.instructions import KernelCall
from hightide.pte.program import load
from hightide.tools.export.check_inputs import check_levels, level_name, random_like
from hightide.tools.export.dynamic_dims import DynamicDim, parse_dynamic, specs_in
from hightide.tools.export.export_report import CheckedSize, ExportReport
from hightide.tools.export.placed_ops import PlacedOp, placed_ops
from hightide.tools.export.python_model import make_python_model, names_python
from hightide.tools.export.stages import message_of, stage

HAS_TORCH = importlib.util.find_spec("torch") is not None

# ---- which dims vary


def test_a_text_says_which_dim_varies() -> None:
    found = parse_dynamic(["x:1=S<=128", "mask : -1 = S", "y:0=2<=B<=4", "z:1=2*S+1"])
    assert found.dims == (
        DynamicDim("x", 1, "S"),
        DynamicDim("mask", -1, "S"),
        DynamicDim("y", 0, "B"),
        DynamicDim("z", 1, "S", 2, 1),
    )
    assert found.ranges == {"S": (1, 128), "B": (2, 4)}
    assert [dim.size for dim in found.dims] == ["S", "S", "B", "2*S+1"]


def test_bounds_are_those_of_the_whole_dim() -> None:
    assert parse_dynamic(["x:1=6<=4*S-2<=31"]).ranges == {"S": (2, 8)}


WRONG = [
    (["x=S<=8"], "'x=S<=8' does not say which dim varies; write NAME:DIM=SYMBOL<=MAX, such as x:1=S<=128"),
    (["x:1"], "does not say which dim varies"),
    (["x:1=S<8"], "does not say which dim varies"),
    (["x:one=S<=8"], "does not say which dim varies"),
    (["x:1=128"], "does not say which dim varies"),
    (["x:1=S"], "S has no largest size; memory is planned for one: write S<=128, for instance"),
    (["x:1=S<=8", "y:1=S<=9"], "S cannot have the bounds 8 and 9 at once"),
    (["x:1=9<=S<=8"], "S must have room to vary, but it is at least 9 and at most 8"),
    (["x:1=S<=1"], "S must have room to vary, but it is at least 1 and at most 1"),
    (["x:1=0*S+4<=8"], "'x:1=0*S+4<=8' makes the dim 4, whatever S is"),
]


@pytest.mark.parametrize(("texts", "message"), WRONG)
def test_a_wrong_text_is_refused_in_one_sentence(texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_dynamic(texts)
    assert message in str(refused.value)


def test_dims_are_found_by_name_and_by_number() -> None:
    shapes = {"x": (2, 7, 4), "mask": (1, 14)}
    found = parse_dynamic(["x:1=S<=8", "1:-1=2*S"]).of(shapes)
    assert {name: list(dims) for name, dims in found.items()} == {"x": [1], "mask": [1]}


UNFIT = [
    (["y:1=S<=8"], "there is no input 'y' to vary; the inputs are x, mask"),
    (["x:3=S<=8"], "input x is [2, 7, 4] and has no dim 3 to vary"),
    (["x:1=S<=8", "x:-2=T<=8"], "dim 1 of input x is named twice"),
    (["x:1=S<=6"], "the example input has 7 at x:1, which is no S with 1 <= S <= 6"),
    (["x:1=2*S<=60"], "the example input has 7 at x:1, which is no 2*S with 1 <= S <= 30"),
    (["mask:0=S<=6"], "the example input has 1 at mask:0, which the exporter takes for a fixed size"),
    (["x:1=S<=20", "mask:1=S"], "S is 7 at x:1 of the example inputs, but 14 at mask:1"),
]


@pytest.mark.parametrize(("texts", "message"), UNFIT)
def test_what_does_not_fit_the_example_inputs_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_dynamic(texts).of({"x": (2, 7, 4), "mask": (1, 14)})
    assert message in str(refused.value)


def test_torchs_own_shapes_are_left_to_torch() -> None:
    assert specs_in("x:1=S<=8") == ["x:1=S<=8"] and specs_in(["a", "b"]) == ["a", "b"]
    for theirs in (None, {}, {"x": {1: object()}}, ({1: object()},), ()):
        assert specs_in(theirs) is None


# ---- sizes and inputs


def test_sizes_are_the_largest_the_smallest_an_odd_and_a_middle_one() -> None:
    assert check_levels({"S": (1, 128)}) == [{"S": 128}, {"S": 1}, {"S": 43}, {"S": 64}]
    assert check_levels({"S": (1, 2)}) == [{"S": 2}, {"S": 1}]
    assert check_levels({}) == [{}]
    both = check_levels({"B": (1, 4), "S": (2, 9)})
    assert {"B": 4, "S": 9} in both and {"B": 1, "S": 2} in both and {"B": 1, "S": 9} in both
    assert level_name(both[0]) == "B=4, S=9" and level_name({}) == "as the example"


def test_sizes_are_within_their_range() -> None:
    for least in range(1, 6):
        for most in range(least + 1, least + 12):
            levels = check_levels({"S": (least, most)})
            assert all(least <= level["S"] <= most for level in levels) and len(levels) > 1


def test_random_inputs_are_like_the_examples() -> None:
    rng = np.random.default_rng(0)
    ids = random_like(np.array([[3, 9]]), (4, 50), rng)
    assert ids.dtype == np.int64 and ids.shape == (4, 50) and set(ids.flat) <= set(range(3, 10)) and ids.max() == 9
    assert set(random_like(np.array([True, False]), (50,), rng)) == {True, False}
    assert random_like(np.array([True]), (50,), rng).all()
    x = random_like(np.float32([-2, 5]), (1000,), rng)
    assert x.dtype == np.float32 and -2 <= x.min() < 0 < 4 < x.max() <= 5
    same = random_like(np.zeros(3, np.float32), (100,), rng)
    assert -1 <= same.min() < 0 < same.max() <= 1
    mask = random_like(np.float32([0, -np.inf]), (50,), rng)
    assert set(mask) == {0, -np.inf} and mask.dtype == np.float32
    assert random_like(np.zeros((0, 3), np.float32), (0, 3), rng).shape == (0, 3)


# ---- who makes the model


@pytest.fixture
def model_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module; gives its path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(code: str, name: str = "written_model.py") -> Path:
        path = tmp_path / name
        path.write_text(code)
        return path

    return write


def test_the_argument_tells_python_from_gguf(tmp_path: Path) -> None:
    (tmp_path / "odd:name").write_bytes(b"")
    for source in ("model.py:make", "a/b/model.py:make", "package.module:make", "model.py", r"C:\models\model.py:make"):
        assert names_python(source), source
    for source in ("model.gguf", "models/model.gguf", r"C:\models\model.gguf", str(tmp_path / "odd:name"), "a b:c"):
        assert not names_python(source), source


def test_a_function_makes_the_model(model_file: Any) -> None:
    path = model_file("def make(): return 'module', (1, 2)\ndef more(): return 'm', (), {'checks': [()]}")
    made = make_python_model(f"{path}:make")
    assert (made.module, made.inputs, made.options) == ("module", (1, 2), {})
    assert make_python_model(f"{path}:more").options == {"checks": [()]}
    assert make_python_model("written_model:make").module == "module"


def test_it_can_import_what_lies_beside_it(model_file: Any) -> None:
    model_file("SIZE = 7", "beside_written_model.py")
    path = model_file("from beside_written_model import SIZE\ndef make(): return SIZE, ()")
    assert make_python_model(f"{path}:make").module == 7


MISTAKES: list[tuple[str, str, type[HightideError], str]] = [
    ("def make(): pass", "made", InputError, "has no function made; it has make"),
    ("x = 1", "make", InputError, "has no function make; it has no functions"),
    ("make = 3", "make", InputError, "must be a function, not 3"),
    ("def make(size): pass", "make", InputError, "is called without arguments, but needs size"),
    (
        "def make(): return 1",
        "make",
        InputError,
        "make must return (module, inputs) or (module, inputs, options), not int",
    ),
    ("def make(): return 1, 2, 3, 4", "make", InputError, "not 4 items"),
    (
        "def make(): return 1, (), {'check': 1}",
        "make",
        InputError,
        "is a dict with dynamic_shapes and checks, not check",
    ),
    ("\n\ndef make(): raise ValueError('no weights')", "make", ExportError, "ValueError: no weights (made.py, line 3)"),
    ("\n1 / 0", "make", ExportError, "made.py failed: ZeroDivisionError: division by zero (made.py, line 2)"),
    ("def make(:", "make", ExportError, "made.py failed: SyntaxError"),
    ("import no_such_package", "make", ExportError, "made.py failed: ModuleNotFoundError: No module named"),
]


@pytest.mark.parametrize(("code", "name", "kind", "message"), MISTAKES)
def test_a_mistake_in_the_users_code_is_one_sentence(
    code: str, name: str, kind: type[HightideError], message: str, model_file: Any, hightide: Any, tmp_path: Path
) -> None:
    path = model_file(code, "made.py")
    with pytest.raises(kind) as refused:
        make_python_model(f"{path}:{name}")
    assert message in str(refused.value) and "\n" not in str(refused.value)
    code_, out, err = hightide("export", f"{path}:{name}", tmp_path / "out.pte")
    assert code_ == 1 and not out and err.startswith("hightide: ") and message in err and "Traceback" not in err


def test_a_traceback_is_shown_when_it_is_asked_for(model_file: Any, hightide: Any, tmp_path: Path) -> None:
    path = model_file("def make(): raise ValueError('no weights')")
    code, _, err = hightide("export", f"{path}:make", tmp_path / "out.pte", "--traceback")
    assert code == 1 and "Traceback" in err and err.splitlines()[-1].startswith("hightide: make() of")


COMMANDS = [
    (["model.py"], "model.py does not name the function that makes the model: write model.py:make_model"),
    (["no/such.py:make"], "no/such.py: no such file"),
    (["no_such_module.at_all:make"], "there is no module no_such_module; it is looked for from"),
    (["model.py:make", "--dynamic", "x:1=S"], "S has no largest size"),
    (["model.py:make", "--context", "8"], "--context is for GGUF models"),
    (["model.py:make", "--group-size", "32"], "--group-size is for GGUF models"),
    (["model.gguf", "--dynamic", "x:1=S<=8"], "--dynamic is for torch modules, such as model.py:make_model"),
    (["model.gguf", "--json"], "--json is for torch modules"),
]


@pytest.mark.parametrize(("arguments", "message"), COMMANDS)
def test_the_command_says_what_is_wrong(arguments: list[str], message: str, hightide: Any, tmp_path: Path) -> None:
    code, out, err = hightide("export", *arguments, tmp_path / "out.pte")
    assert code == 1 and not out and message in err and len(err.splitlines()) == 1


@pytest.mark.skipif(HAS_TORCH, reason="the extra is there")
def test_without_the_extra_it_says_what_to_install(model_file: Any, hightide: Any, tmp_path: Path) -> None:
    path = model_file("def make(): return None, ()")
    code, _, err = hightide("export", f"{path}:make", tmp_path / "out.pte")
    assert code == 1 and "pip install 'hightide[export]'" in err
    with pytest.raises(UnsupportedError, match="exporting needs torch"):
        package.export(None, ())


def test_options_are_checked_first(tmp_path: Path) -> None:
    for options, message in [
        ({"out": tmp_path / "out.bin"}, "must end in .pte and be in a folder that exists"),
        ({"out": tmp_path / "none" / "out.pte"}, "must end in .pte and be in a folder that exists"),
        ({"out": 3}, "out must be the path of a file, not 3"),
        ({"fp16": 1}, "fp16 must be True or False, not 1"),
        ({"tolerance": -1.0}, "tolerance must be at least 0, not -1.0"),
        ({"tolerance": "small"}, "tolerance must be a number, not 'small'"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
    ]:
        with pytest.raises(InputError) as refused:
            package.export(None, (), **options)
        assert message in str(refused.value)


# ---- errors of the exporter, and the report


def test_an_error_names_its_stage_and_keeps_the_exporters_message() -> None:
    text = (
        'Constraints violated (S)! For more information, run with TORCH_LOGS="+dynamic".\n  - S is 5.\n\nFrom user code'
    )
    with pytest.raises(ExportError) as refused, stage("export"):
        raise ValueError(text)
    assert refused.value.stage == "export" and isinstance(refused.value.__cause__, ValueError)
    assert str(refused.value) == (
        "stage 'export' failed in torch.export: ValueError: Constraints violated (S)! - S is 5."
    )
    assert len(message_of(ValueError("word " * 1000))) < 700


@pytest.mark.filterwarnings("ignore:method forward runs outside")
def test_files_are_exported_quietly_and_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with exporting():
        warnings.warn("will be removed in a future release", stacklevel=1)
        logging.getLogger().warning("Found 1 subgraphs")
        print("compiling")
    assert capsys.readouterr() == ("", "compiling\n")
    with pytest.raises(ProgramError, match=r"^ExecuTorch's exporter failed: no partition today$"), exporting():
        raise AssertionError("no partition today\nand a long tail")
    with pytest.raises(ProgramError, match=r"^ExecuTorch's exporter failed: AssertionError$"), exporting():
        raise AssertionError
    with pytest.raises(InputError, match=r"^ours$"), exporting():
        raise InputError("ours")


@pytest.mark.parametrize("name", INDEX)
def test_every_op_of_a_program_has_its_place(name: str) -> None:
    """And a reason, if that is the host."""
    whole = load(PROGRAMS / f"{name}.pte", device="cpu")
    parts = load(PROGRAMS / f"{name}.pte", device="cpu", whole=False)
    for method in dict.fromkeys(INDEX[name]["steps"]):
        kernels, left = (
            [i.op for i in program.file.methods[method].instructions if isinstance(i, KernelCall)]
            for program in (parts, whole)
        )
        ops = placed_ops(parts, whole, method)
        assert ops and sum(op.joined + op.host for op in ops) == len(kernels)
        assert sum(op.host for op in ops) == len(left) and all(bool(op.why) == (op.host > 0) for op in ops)


def test_reasons_are_those_of_the_regions() -> None:
    for name, reason in (
        ("wide", "float64, which a GPU does not hold"),
        ("cond", "so small that NumPy is done with it sooner"),
    ):
        parts, whole = (load(PROGRAMS / f"{name}.pte", device="cpu", whole=joined) for joined in (False, True))
        assert {op.why for op in placed_ops(parts, whole, "forward")} - {""} == {reason}


def report(*sizes: CheckedSize) -> ExportReport:
    ops = (PlacedOp("aten.nonzero.default", 0, 0, 1, "no GPU kernel"), PlacedOp("aten.add.Tensor", 2, 1, 0, ""))
    return ExportReport("out.pte", 1234, "(x: float32[S]) -> float32[S]", "a GPU", 1e-3, sizes, ops, 1, 3)


def test_a_report_prints_as_tables() -> None:
    good = report(CheckedSize("S=8", (2e-7,), 4), CheckedSize("S=1", skipped="the module itself fails there"))
    assert good.passed and good.worst == 2e-7 and good.as_json()["passed"]
    assert str(good).splitlines() == [
        "out.pte: 1.23 kB, forward(x: float32[S]) -> float32[S]; beside eager on a GPU",
        "",
        "size  dispatches    error  allowed",
        "S=8            4  2.0e-07  1.0e-03  ok",
        "S=1                                 -",
        "S=1: not checked, the module itself fails there",
        "",
        "op                    delegated  joined  host  why",
        "aten.add.Tensor               2       1     -",
        "aten.nonzero.default          -       -     1  no GPU kernel",
        "3 op calls: after passes, 3 in 1 graph, 1 call on the host",
        "",
        "passed: 1 size checked, at most 2.0e-07 from eager",
    ]


def test_a_report_with_a_wrong_size_fails() -> None:
    bad = report(CheckedSize("S=8", (0.5,), 4, "out0 is off"), CheckedSize("S=1", (0.0,), 4))
    assert not bad.passed and "S=8: out0 is off" in str(bad) and str(bad).endswith("FAILED at S=8")
    none = report(CheckedSize("S=8", skipped="no"))
    assert not none.passed and str(none).endswith("FAILED: the module takes none of the sizes that were tried")
