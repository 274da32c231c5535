"""The table of ops: current, complete, and as the command prints it."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from hightide.cli import main
from hightide.ops import FAMILIES, REGISTRY
from hightide.ops.table import OpRow, count_line, op_table

ROOT = Path(__file__).resolve().parents[2]
REMEDY = "is out of date: run scripts/make_ops_doc.py"

# GPU ops that no case runs under any of their names. To add a row is to delete a name here.
WITHOUT_CASE: set[str] = set()


@pytest.fixture(scope="module")
def generator() -> Any:
    before = sys.path.copy()
    try:
        yield runpy.run_path(str(ROOT / "scripts" / "make_ops_doc.py"))
    finally:
        sys.path[:] = before


@pytest.fixture(scope="module")
def routes(generator: Any) -> Any:
    return generator["plan_cases"]()


def test_files_are_current(generator: Any, routes: Any) -> None:
    assert generator["DATA"].read_text("utf-8") == generator["data_text"](routes), f"routes.json {REMEDY}"
    assert generator["DOC"].read_text("utf-8") == generator["doc_text"](routes), f"docs/ops.md {REMEDY}"


def test_every_gpu_op_has_a_case(generator: Any, routes: Any) -> None:
    """Names of one op instance are aliases: a case under any of them covers all."""
    covered = {id(REGISTRY[case.op]) for case in generator["CASES"]}
    gpu = [row for row in op_table(routes) if row.gpu]
    assert {row.name for row in gpu if id(REGISTRY[row.name]) not in covered} == WITHOUT_CASE
    assert {row.name for row in gpu if not (row.types and row.routes)} == WITHOUT_CASE


def test_rows() -> None:
    rows = {row.name: row for row in op_table()}
    assert list(rows) == [row.name for row in op_table()] and rows.keys() == REGISTRY.keys()
    assert {row.family for row in rows.values()} == set(FAMILIES)
    permute = rows["aten.permute_copy.default"]
    assert permute.gpu and permute.summary == "Dims in another order." and "strided" in permute.routes
    assert rows["sym_size.int"].runs_on == "host"
    assert rows["aten.nonzero.default"].runs_on == "NumPy only"
    assert "view" in rows["aten.view_copy.default"].routes


def test_count_line() -> None:
    gpu = OpRow("a", "views", "GPU + NumPy", "", (), ())
    assert count_line([gpu]) == "1 op: 1 GPU + NumPy"
    host = OpRow("b", "symints", "host", "", (), ())
    assert count_line([gpu, host, host]) == "3 ops: 1 GPU + NumPy, 2 host"


def test_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def hightide(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hightide", "ops", *args])
        with pytest.raises(SystemExit) as done:
            main()
        return int(done.value.code or 0), *capsys.readouterr()

    code, out, _ = hightide()
    lines = out.splitlines()
    assert code == 0 and lines[0].split() == ["op", "family", "runs", "on", "types", "routes"]
    assert lines[-1] == count_line(op_table()) and len(lines) == len(REGISTRY) + 2

    found = json.loads(hightide("RMS_norm", "--json")[1])
    linears = ("adapted_linear", "linear", "linear_q4")  # which may norm x first
    by_route = [f"hightide.{name}.default" for name in linears]
    assert [row["name"] for row in found] == ["et_vk.rms_norm.default", *by_route]
    assert found[0]["family"] == "norm" and found[0]["types"] == ["float32"] and "rms_norm" in found[0]["routes"]

    code, out, err = hightide("no such op")
    assert code == 1 and not out and "no op has 'no such op'" in err
