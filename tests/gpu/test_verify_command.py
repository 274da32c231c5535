"""The command `hightide verify`: what it prints, its exit codes, two files, two adapters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from planted import KernelFault
from schedules import PROGRAMS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from typer.testing import CliRunner

from hightide.cli import app
from hightide.gpu.device import Device
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import TensorValue
from hightide.tools.opened_file import open_file


def command(*args: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["verify", "--no-routes", *map(str, args)])
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result.output


def test_the_command_says_what_it_saw(device: Device, tmp_path: Path) -> None:
    file = PROGRAMS / "llama_gqa.pte"
    text = command(file, "--level", "S=1,3", "--pos", "0,2")
    assert "S=3 pos=2" in text and "llama_gqa.pte: passed (" in text and text.strip().endswith("ops at 4 levels)")
    one_line = command(file, "--at", "S=2,pos=1", "--quiet")
    assert one_line.startswith("llama_gqa.pte: passed (") and one_line.count("\n") <= 2
    page = tmp_path / "page.html"
    report = json.loads(command(file, "--at", "S=2,pos=1", "--json", "--html", page))
    assert report["passed"] and report["culprit"] is None and report["levels"][0]["at"] == {"S": 2, "pos": 1}
    alone = [op["alone"] for op in report["levels"][0]["ops"] if op["alone"]]
    assert all({"max_abs", "max_rel", "rms", "worst", "got", "want", "nan", "inf", "bad"} <= set(a) for a in alone)
    assert "<html" in page.read_text() and "rope_attend" in page.read_text()


def test_given_inputs_are_verified(device: Device) -> None:
    file = PROGRAMS / "llama_gqa.pte"
    given = ["--input", "tokens=[[5, 6, 7]]", "--input", "input_pos=[4]", "--json"]
    assert json.loads(command(file, *given))["levels"][0]["at"] == {"S": 3, "pos": 4}


def test_the_command_fails_with_the_name_of_the_op(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    KernelFault(monkeypatch, "let start = row *", "let start = (row + 1u) *")
    own = Device(device.adapter)
    monkeypatch.setattr("hightide.tools.opened_file.choose_device", lambda selector: own)
    text = command(PROGRAMS / "llama_gqa.pte", "--at", "S=7,pos=0", code=1)
    flat = " ".join(text.split())
    assert "(hightide.linear_q4.default) of forward is wrong by itself at S=7 pos=0" in flat
    assert "FAILED in op" in flat and "it reads beyond the live part of something" in flat
    report = json.loads(command(PROGRAMS / "llama_gqa.pte", "--at", "S=7,pos=0", "--json", code=1))
    assert report["culprit"]["name"] == "hightide.linear_q4.default" and report["culprit"]["at"] == {"S": 7, "pos": 0}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--level", "Q=3"], "has no Q"),
        (["--level", "S=three"], "levels are written as S=1,7,128"),
        (["--at", "S=900"], "S is 900"),
        (["--at", "S=1", "--pos", "3"], "--at names whole levels"),
        (["--prompt", "hello"], "has no tokenizer"),
        (["--method", "backward"], "has no method 'backward'"),
        (["--device", "no such gpu"], "there is no device 'no such gpu'"),
        (["--device", "cpu"], "there is no WebGPU adapter to verify"),
        (["--against", "missing.pte"], "missing.pte"),
    ],
)
def test_what_cannot_be_verified_is_a_sentence_and_exit_code_2(args: list[str], words: str, device: Device) -> None:
    output = command(PROGRAMS / "llama_gqa.pte", *args, code=2)
    assert words in output and "Traceback" not in output


def test_two_files_are_compared_op_by_op(device: Device, tmp_path: Path) -> None:
    file = PROGRAMS / "llama_gqa.pte"
    assert "at most 0.0e+00 from" in command(file, "--against", file, "--at", "S=3,pos=0", "--quiet")
    data = bytearray(file.read_bytes())
    opened = open_file(file)
    broken = damaged_scale(opened.parts[0].graph, data)
    other = tmp_path / "other.pte"
    other.write_bytes(data)
    report = json.loads(command(file, "--against", other, "--at", "S=3,pos=0", "--at", "S=1,pos=4", "--json", code=1))
    first = next(op for op in report["pairs"][0]["ops"] if op["errors"]["bad"])
    names = [op["name"] for op in report["pairs"][0]["ops"]]
    assert "linear" in first["name"], (first, names)
    before = [op for op in report["pairs"][0]["ops"] if op["index"] < first["index"]]
    assert before and all(op["errors"]["max_rel"] == 0 for op in before)
    assert not report["passed"] and broken is not None


def damaged_scale(graph: Graph, data: bytearray) -> OpCall:
    """A scale of the third linear, ten times as large, in the file's bytes."""
    call = [c for c in graph.calls if "linear_q4gsw" in c.name][2]
    prepacked = {c.out: c.args["x"] for c in graph.calls if "prepack" in c.name}
    value = graph.values[prepacked.get(call.args["scales"], call.args["scales"])]
    assert isinstance(value, TensorValue) and value.constant is not None
    stored = bytes(value.constant.view())
    at = bytes(data).index(stored)
    scales = np.frombuffer(stored, np.float32).copy()
    scales[:4] *= 10
    data[at : at + len(stored)] = scales.tobytes()
    return call


def test_two_files_of_different_forms_are_compared_by_their_outputs(device: Device) -> None:
    text = command(PROGRAMS / "llama_gqa.pte", "--against", PROGRAMS / "llama_g64.pte", "--at", "S=3,pos=0", code=1)
    assert "not compared op by op: op" in " ".join(text.split())


def test_two_adapters_are_compared(device: Device) -> None:
    report = json.loads(command(PROGRAMS / "llama_gqa.pte", "--adapters", "0,cpu", "--at", "S=3,pos=5", "--json"))
    assert report["devices"][1] == "NumPy" and len(report["pairs"]) == 1 and report["passed"]
    assert 0 < report["pairs"][0]["outputs"][0]["max_rel"] < 1e-5
    same = json.loads(command(PROGRAMS / "llama_gqa.pte", "--adapters", "0,0", "--at", "S=3,pos=5", "--json"))
    assert len(same["levels"]) == 2 and same["pairs"][0]["outputs"][0]["max_rel"] == 0
    assert len(same["pairs"][0]["ops"]) > 10


def test_a_prompt_is_read_as_a_model_would(device: Device, tmp_path: Path) -> None:
    """Whole, then its last token at its position; of a longer one the last chunk."""
    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(160)}, unk_token="w0"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Whitespace(), decoders.ByteLevel()
    words.save(str(tmp_path / "words.json"))
    file, given = PROGRAMS / "llama_gqa.pte", ["--tokenizer", tmp_path / "words.json", "--json"]
    report = json.loads(command(file, "--prompt", "w5 w6 w7", *given))
    assert [level["at"] for level in report["levels"]] == [{"S": 3, "pos": 0}, {"S": 1, "pos": 2}] and report["passed"]
    report = json.loads(command(file, "--prompt", "w5 " * 50, *given))
    assert [level["at"] for level in report["levels"]] == [{"S": 47, "pos": 3}, {"S": 1, "pos": 49}]


def test_what_is_not_looked_at_is_said(device: Device) -> None:
    text = " ".join(command(PROGRAMS / "partial.pte").split())
    assert "outside the delegates, on NumPy, and not looked at: aten::" in text


def test_a_narrow_window_keeps_the_numbers(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "46")
    text = command(PROGRAMS / "llama_gqa.pte", "--at", "S=2,pos=1")
    assert max(map(len, text.splitlines())) <= 46
    assert "linear_q4" in text and "2.0e-05" in text and "routes" not in text.split("passed")[0]
