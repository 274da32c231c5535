"""The command line, on the references."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from schedules import PROGRAMS, relative_error, steps

from hightide.cli import COMMANDS, load_command


@pytest.fixture(autouse=True)
def on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")


def test_random_run(hightide: Any) -> None:
    code, out, err = hightide("run", PROGRAMS / "llama_gqa.pte", "--random", "tokens=1x17")
    assert code == 0 and out.startswith("out0 float32[1, 160]\n[[")
    assert "ran in" in err
    assert hightide("run", PROGRAMS / "llama_gqa.pte", "--random", "tokens=1x17")[1] == out
    assert hightide("run", PROGRAMS / "llama_gqa.pte", "--random", "tokens=1x17", "--seed", 1)[1] != out


def test_json(hightide: Any) -> None:
    _, inputs, outputs = next(steps("llama_gqa"))
    tokens, position = (json.dumps(x.tolist()) for x in inputs)
    code, out, _ = hightide(
        "run", PROGRAMS / "llama_gqa.pte", "--input", f"tokens={tokens}", "--input", position, "--json"
    )
    (result,) = json.loads(out)
    assert code == 0 and (result["name"], result["dtype"], result["dims"]) == ("out0", "float32", [1, 160])
    assert relative_error(np.array(result["data"], np.float32), outputs[0]) < 1e-5


@pytest.mark.parametrize("kind", ["npy", "npz", "npz by name", "bin", "json"])
def test_input_files(hightide: Any, tmp_path: Path, kind: str) -> None:
    _, inputs, outputs = next(steps("llama_gqa"))
    names = ("tokens", "input_pos")
    files = [tmp_path / f"{name}.{kind}" for name in names]
    given = [f"--input={name}={file}" for name, file in zip(names, files, strict=True)]
    if kind.startswith("npz"):
        keys = names[::-1] if kind.endswith("name") else ("a", "b")
        np.savez(
            tmp_path / "all.npz", **dict(zip(keys, inputs[::-1] if kind.endswith("name") else inputs, strict=True))
        )
        given = [f"--input={tmp_path / 'all.npz'}"]
    else:
        for file, array in zip(files, inputs, strict=True):
            match kind:
                case "npy":
                    np.save(file, array)
                case "bin":
                    file.write_bytes(array.tobytes())
                case "json":
                    file.write_text(json.dumps(array.tolist()))
    code, _, err = hightide("run", PROGRAMS / "llama_gqa.pte", *given, "--output", tmp_path / "out.npy")
    assert code == 0, err
    assert relative_error(np.load(tmp_path / "out.npy"), outputs[0]) < 1e-5


def test_outputs_are_saved(hightide: Any, tmp_path: Path) -> None:
    run = ("run", PROGRAMS / "partial.pte", "--random", "in0=7x12")
    code, out, err = hightide(*run, "--output", tmp_path / "out.npz", "--json")
    assert code == 0 and "data" not in json.loads(out)[0]
    assert "runs outside its delegates, on NumPy: aten::_to_copy.out, aten::topk.values" in err
    with np.load(tmp_path / "out.npz") as saved:
        assert sorted(saved) == ["out0", "out1", "out2"] and saved["out0"].shape == (7, 9)
    assert hightide(*run, "--output", tmp_path / "folder")[0] == 0
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == ["out0.npy", "out1.npy", "out2.npy"]
    assert hightide(*run, "--output", tmp_path / "one.npy")[0] == 1


def test_other_method_and_data_file(hightide: Any) -> None:
    assert hightide("run", PROGRAMS / "counter.pte", "--method", "get_max_seq_len")[1] == "out0 int64[]\n33\n"
    folder = PROGRAMS / "external"
    code, _, err = hightide("run", folder / "external.pte")
    assert code == 1 and "pass its .ptd file" in err


LLAMA = PROGRAMS / "llama_gqa.pte"
ERRORS: list[tuple[tuple[object, ...], str]] = [
    (("nothing.pte",), "cannot read nothing.pte"),
    ((LLAMA,), "no value was given for tokens; use --input"),
    ((LLAMA, "--random", "tokens=1x48"), "input tokens cannot be 1x48; its max dims are [1, 47]"),
    ((LLAMA, "--random", "tokens=big"), "'big' is not a shape, such as 1x17"),
    ((LLAMA, "--random", "words=1x4"), "there is no input 'words'; the inputs are tokens, input_pos"),
    ((LLAMA, "--input", "tokens=[[1,200]]"), "token id 200"),
    ((LLAMA, "--input", "tokens=nothing.npy"), "No such file"),
    ((LLAMA, "--input", "tokens={[}"), "is neither JSON nor the name of"),
    ((LLAMA, "--random", "1x3", "--device", "no such device"), "no such device"),
    ((LLAMA, "--method", "back"), "has no method 'back'"),
    (
        (LLAMA, "--random", "1x3", "--route", "linear.gemv"),
        "a route is written as NAME=OPTION, such as",
    ),
    ((LLAMA, "--random", "1x3", "--route", "linear.gem=split"), "there is no choice of routes 'linear.gem'"),
    ((LLAMA, "--random", "1x3", "--route", "linear.gemv=x"), "linear.gemv has no route 'x'; its routes are"),
    ((PROGRAMS / "README.md",), "README.md"),
]


@pytest.mark.parametrize(("args", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors_are_one_line(hightide: Any, args: tuple[object, ...], message: str) -> None:
    code, out, err = hightide("run", *args)
    assert code == 1 and not out
    assert message in err and err.startswith("hightide: ") and err.count("\n") == 1


def test_adapters(hightide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = pytest.importorskip("hightide.gpu.device")
    limits = {"max-buffer-size": 2 << 30, "max-compute-invocations-per-workgroup": 256, "max-bind-groups": 4}
    fake = SimpleNamespace(
        index=0, name="Tide 1", kind="DiscreteGPU", backend="Vulkan", driver="v1", limits=limits,
        features=("shader-f16", "texture-compression-bc"),
    )  # fmt: skip
    monkeypatch.setattr(device, "adapters", lambda: (fake,))
    code, out, _ = hightide("adapters")
    assert code == 0 and out.splitlines() == [
        "0: Tide 1 (DiscreteGPU, Vulkan, v1)",
        "   largest buffer         2 GiB",
        "   threads per workgroup  256",
        "   features               shader-f16",
        "cpu: the NumPy references",
    ]
    (entry,) = json.loads(hightide("adapters", "--json")[1])
    assert entry["name"] == "Tide 1" and entry["limits"]["max-buffer-size"] == 2 << 30


# ---- help


def test_help_imports_no_command() -> None:
    code = "import hightide.cli, sys; sys.argv = ['hightide', '--help']; hightide.cli.main()"
    after = "import atexit, sys; atexit.register(lambda: print(sorted({'numpy', 'wgpu'} & set(sys.modules))))"
    command = [sys.executable, "-c", f"{after}; sys.path = {sys.path!r}; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Run language models" in done.stdout and done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "bench"])
def test_the_list_of_commands_says_what_they_say_themselves(name: str) -> None:
    assert load_command(name).help.splitlines()[0] == COMMANDS[name]


def test_an_unknown_command(hightide: Any) -> None:
    code, out, err = hightide("chta")
    assert code == 2 and not out and "No such command 'chta'" in err
