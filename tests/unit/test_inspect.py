"""`hightide inspect`: every committed file at a glance, as a graph, as a plan, as JSON and as a page."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from schedules import INDEX, PROGRAMS
from typer.testing import CliRunner

from hightide.cli import app
from hightide.errors import HightideError
from hightide.formats.instructions import KernelCall
from hightide.formats.program_file import MethodFile, ProgramFile, TensorSpec
from hightide.graph.blob import Blob
from hightide.ops import REGISTRY
from hightide.tools.inspect.file_report import Inspection, inspect_file, printable
from hightide.tools.inspect.inspect_page import make_page
from hightide.tools.inspect.inspect_tables import print_graph, print_plan, print_report
from hightide.tools.inspect.listing import layers_of, list_graph
from hightide.tools.inspect.picture import draw
from hightide.tools.inspect.planning import Target, target_of
from hightide.tools.inspect.repeats import Repetition, find_repeat
from hightide.tools.opened_file import open_file
from hightide.units import count, counted, size

MODELS = Path(__file__).parents[1] / "models"
DEEP = MODELS / "gemma3_27b.gguf"  # 62 layers
FILES = [PROGRAMS / f"{name}.pte" for name in INDEX] + sorted(set(MODELS.glob("*.gguf")) - {DEEP})
LLAMA = PROGRAMS / "llama_gqa.pte"
ANYWHERE: Target = target_of(None)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments), "--device", "cpu"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_at_a_glance(path: Path) -> None:
    report = inspect_file(path, ANYWHERE).report
    assert report.methods and not report.missing
    for method in report.methods:
        for part in method.parts:
            assert part.memory.total > 0 and part.memory.reuse >= 0
            assert sum(part.runs.values()) <= sum(part.ops.values())
            assert [c.bytes for c in part.constants] == sorted((c.bytes for c in part.constants), reverse=True)


def test_the_report_says_what_is_in_the_file() -> None:
    text = run(LLAMA)
    assert "forward(tokens int64[1, S], input_pos int64[1]) -> float32[1, 160]" in text
    assert "S up to 47, pos up to 95" in text
    assert "60 op calls (VulkanBackend)" in text
    assert re.search(r"et_vk.linear_q4gsw.default +15", text)
    assert re.search(r"KV and other state +49\.2 kB", text)  # 2 layers of 2 caches [1, 96, 2, 16] in float32
    assert "\x1b" not in text and not re.search(r" $", text, re.MULTILINE)


def test_what_is_not_delegated_is_named() -> None:
    text = run(PROGRAMS / "partial.pte")
    assert "aten::_to_copy.out x4, aten::topk.values x1, aten::cumsum.out x2" in text and "2 parts" in text
    assert "float32[S, 9], int64[S, 11], float32[S, 9]" in text  # what kernels outside give has formulas too
    portable = run(PROGRAMS / "portable.pte")
    assert "forward(in0 float32[S, 10]) -> float32[15, S], int64[S]" in portable and "S up to 33" in portable
    assert "12 op calls (portable)" in portable and "NumPy" not in portable
    assert "12 op calls" not in (split := run(PROGRAMS / "portable.pte", "--no-fuse")) and "on NumPy" in split
    assert "-> float32[in1, 10], float32[2*in1, 6]" in run(PROGRAMS / "value_shape.pte")


def test_instructions_connect_the_parts_of_a_method() -> None:
    text = run(PROGRAMS / "partial.pte", "--graph")
    assert "9 instructions: 2 parts, 7 on NumPy" in text
    assert re.search(r"0 +part forward/0 +in0 +value 1 float32\[S, 20\]", text)
    assert re.search(r"3 +aten::cumsum.out +value \d+, 0, None +value \d+ float64\[S, 11\]", text)
    assert re.search(r"forward/1: 2 op calls; takes value \d+, gives value \d+;", text)
    data = json.loads(run(PROGRAMS / "partial.pte", "--graph", "--json"))
    assert [line["op"] for line in data["instructions"]["forward"]] == [*range(9)]
    assert "instructions: " not in run(PROGRAMS / "partial.pte", "--graph", "--part", "1")
    branches = run(PROGRAMS / "cond.pte", "--graph")
    assert "if not: to instruction 6" in branches and "value 8 float32[S, 6]" in branches
    assert "1 op call;" in (split := run(PROGRAMS / "cond.pte", "--graph", "--no-fuse")) and "1 op calls" not in split


def test_caches_are_state_and_no_constants() -> None:
    text = run(LLAMA, "--graph")
    assert re.search(r"state float32\[1, 96, 2, 16\], state +%81", text)  # two caches, over two lines
    assert "const float32[1, 96, 2, 16]" not in text
    assert "state float32[" in run(PROGRAMS / "counter.pte", "--graph")  # a buffer outside the delegates


def test_weights_outside_delegates_are_listed() -> None:
    text = run(PROGRAMS / "llama_e8.pte", "--all", "--no-fuse")
    name = re.escape("weight of instruction 0 (quantized_decomposed::embedding_byte.dtype_out)")
    assert re.search(rf"{name} +int8 +\[160, 64\] +10\.2 kB", text)
    assert re.search(r"weights on NumPy +11\.5 kB", text)
    (method,) = (m for m in inspect_file(PROGRAMS / "wide.pte", ANYWHERE).report.methods if m.constants)
    assert not method.parts


def test_a_method_that_takes_no_level_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its kernel refuses whatever it is given, so nothing is known of what it would give."""

    def tensor(*dims: int, data: bool = False) -> TensorSpec:
        blob = Blob(bytes(4 * dims[0] * dims[1]), 0, 4 * dims[0] * dims[1]) if data else None
        return TensorSpec("float32", dims, True, (0, 1), blob, None, None, None)

    values = (tensor(4, 3), tensor(5, 2, data=True), tensor(4, 2))
    method = MethodFile("forward", values, (0,), (2,), (KernelCall("aten::mm.out", (0, 1, 2, 2)),), ())
    path = tmp_path / "wrong.pte"
    path.write_bytes(b"\0\0\0\0ET12")
    program = ProgramFile(path, {"forward": method}, {})
    monkeypatch.setattr("hightide.tools.inspect.file_report.read_program", lambda path: program)
    text = run(path)
    assert "forward(in0 float32[4, 3]) -> float32[?, ?]" in text
    assert "value 2 float32[4, 2]" in run(path, "--graph")


def printed(inspection: Inspection, width: int) -> str:
    """The report, the graphs and the plans."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    print_report(console, inspection.report, every=True)
    for listing in inspection.listings.values():
        print_graph(console, f"{listing.file.name}: {listing.summary}", listing.lines, 1)
    for planned in (part for parts in inspection.parts.values() for part in parts):
        print_graph(console, f"{planned.part.name}: {planned.summary}", planned.lines, 1)
        print_plan(console, planned.part.name, planned.explain_at({}))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("path", [LLAMA, PROGRAMS / "partial.pte"], ids=lambda path: path.name)
def test_no_window_is_too_narrow_for_a_word(path: Path) -> None:
    inspection = inspect_file(path, ANYWHERE)
    words = set(printed(inspection, 1000).split())
    words |= {word.removesuffix(".default") for word in words}  # a narrow window does without
    for width in (80, 40, 20):
        for line in printed(inspection, width).splitlines():
            assert set(line.split()) <= words
            assert len(line) <= width or len(line.split()) <= 2, line  # a long word, behind what it is


def test_a_narrow_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for arguments in ([], ["--graph"], ["--at", "S=17,pos=40"]):
        lines = run(LLAMA, *arguments).splitlines()
        assert max(map(len, lines)) <= 60
    assert any("1.00 kB" in line or re.search(r"\d kB", line) for line in lines)  # numbers stay whole


def test_several_methods() -> None:
    text = run(PROGRAMS / "counter.pte")
    assert "forward(in0 float32[S, 8])" in text and "project(in0 float32[S, 8], in1 float32[S, 8])" in text
    only = run(PROGRAMS / "counter.pte", "--method", "project", "--graph")
    assert "project: 3 op calls" in only and "forward" not in only
    with pytest.raises(HightideError, match="no method 'nothing'; it has forward, project"):
        run(PROGRAMS / "counter.pte", "--method", "nothing")
    with pytest.raises(HightideError, match="there is no part 7"):
        run(PROGRAMS / "partial.pte", "--part", 7)


def test_weights_of_a_gguf_model_have_their_names(deep: Inspection) -> None:
    report = deep.report
    names = {c.name for c in report.methods[0].parts[0].constants}
    assert "token_embd.weight" in names
    assert any("blk.0.attn_q.weight + blk.0.attn_k.weight" in name for name in names)  # joined by a pass
    assert report.metadata["general.architecture"] == "gemma3"


def test_the_graph_has_formulas() -> None:
    text = run(LLAMA, "--graph", "--no-fuse")
    assert "60 op calls; formulas checked at 16 levels" in text
    assert re.search(r"add +%\d+, %\d+ +%\d+ = pos \+ S", text)
    assert "float32[1, S, 64]" in text and "float32[S, 8]" in text


@pytest.fixture(scope="module")
def deep() -> Inspection:
    return inspect_file(DEEP, ANYWHERE)


def test_layers_are_folded_unless_all_are_wanted(deep: Inspection) -> None:
    (planned,) = deep.parts["forward"]
    lines = list_graph(planned.graph, planned.formulas, planned.part.names)
    shown = {}
    for every in (False, True):
        console = Console(file=io.StringIO(), record=True, width=140, highlight=False)
        print_graph(console, "forward", lines, 16, every)
        shown[every] = console.export_text()
    assert re.search(r"layer 1 of 6\d", shown[False]) and re.search(r"layers 2 to 6\d: the same", shown[False])
    assert len(shown[True].splitlines()) > 5 * len(shown[False].splitlines())


def test_the_plan_at_a_level() -> None:
    text = run(LLAMA, "--at", "S=17,pos=40")
    assert "inputs [1, 17] [1]" in text and "dispatches" in text
    plan = json.loads(run(LLAMA, "--at", "S=1,pos=40", "--json"))["plans"]["forward"]
    assert plan["at"] == {"S": 1, "pos": 40}
    rows = [row for row in plan["rows"] if row["grid"] != [0, 0]]
    assert rows and all(row["bytes"] > 0 for row in rows)
    flops = {at: _flops(at) for at in ("S=1,pos=40", "S=16,pos=40")}
    assert 10 < flops["S=16,pos=40"] / flops["S=1,pos=40"] < 17  # the work follows the live length


def _flops(at: str) -> int:
    plan = json.loads(run(LLAMA, "--at", at, "--json"))["plans"]["forward"]
    return sum(row["flops"] for row in plan["rows"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "S=48"], "S is 48; in forward it is 0 to 47"),
        (["--at", "S=0"], "S is 0; forward takes at least 1"),
        (["--at", "T=1"], "has no T; what varies in it: S"),
        (["--at", "seventeen"], "a level is written as"),
        (["--at", "S=47,pos=95"], "context"),
    ],
)
def test_levels_that_cannot_be(arguments: list[str], message: str) -> None:
    with pytest.raises(HightideError, match=message):
        run(LLAMA, *arguments)


def test_json_is_the_whole_of_it() -> None:
    made = json.loads(run(LLAMA, "--graph", "--json"))
    (method,) = made["methods"]
    assert method["symbols"] == {"S": 47, "pos": 95} and method["inputs"][0]["live"] == ["1", "S"]
    graph = made["graphs"]["forward"]
    assert len(graph["checked_levels"]) == 16 and graph["calls"][0]["name"]


# ---- files that are not as they should be


@pytest.mark.parametrize("cut", [7, 100, 5000, 60_000])
def test_damaged_files_are_one_sentence(tmp_path: Path, cut: int) -> None:
    for whole in (LLAMA, MODELS / "llama.gguf"):
        broken = tmp_path / f"broken{whole.suffix}"
        broken.write_bytes(whole.read_bytes()[:cut])
        with pytest.raises(HightideError) as refused:
            run(broken)
        assert "\n" not in str(refused.value)


def test_what_is_no_program(tmp_path: Path) -> None:
    other = tmp_path / "text.pte"
    other.write_text("hello, this is no program")
    with pytest.raises(HightideError, match="neither a GGUF model"):
        run(other)
    with pytest.raises(HightideError, match="is not a file"):
        run(tmp_path / "nothing.pte")


def test_a_program_with_unknown_ops_is_still_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REGISTRY, "et_vk.rms_norm.default")
    result = CliRunner().invoke(app, ["inspect", str(LLAMA), "--device", "cpu"])
    assert result.exit_code != 0
    assert "it needs et_vk.rms_norm.default" in str(result.exception)
    assert re.search(r"et_vk.rms_norm.default +5", result.stdout)


def test_names_from_files_cannot_reach_the_terminal() -> None:
    assert printable("a\x1b[31m\x07b") == "a?[31m?b"


# ---- the picture


def test_the_page_is_whole_and_small(deep: Inspection) -> None:
    page = make_page(deep, deep.parts["forward"])
    assert len(page) < 3_000_000
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    (part,) = data["parts"]
    assert len(part["groups"]) > 60 and part["levels"][0] == {"S": 1, "pos": 127, "keep": 1}
    kernels = {row[1] for plan in part["plans"] for rows in plan.values() for row in rows}
    assert kernels == set(range(len(data["kernels"])))
    assert all("fn main" in kernel["source"] for kernel in data["kernels"])


def test_without_igraph_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(HightideError, match=re.escape("pip install 'hightide[html]'")):
        run(LLAMA, "--html", tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_names_cannot_end_the_data_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "<script>alert(1)<" / "x.pte"
    path.parent.mkdir()
    path.write_bytes(LLAMA.read_bytes())
    inspection = inspect_file(path, ANYWHERE)
    assert make_page(inspection, inspection.parts["forward"]).count("<script") == 2  # the page's own


@pytest.mark.parametrize("path", [LLAMA, PROGRAMS / "bert.pte", MODELS / "gemma3.gguf"], ids=lambda path: path.stem)
def test_every_tensor_is_an_edge_that_goes_down(path: Path) -> None:
    for part in open_file(path).parts:
        lines = list_graph(part.graph, _no_formulas(), part.names)
        names = dict(zip(part.graph.inputs, part.names, strict=True))
        picture = draw(part.graph, names, layers_of(lines))
        drawn = [picture.top, *picture.groups.values()]
        for placed in drawn:
            for edge in placed.edges:
                layers = [placed.at[edge.source][1], *(layer for _, layer in edge.via), placed.at[edge.target][1]]
                assert layers == list(range(layers[0], layers[0] + len(layers))) and len(layers) > 1
            spots = list(placed.at.values())
            assert len(set(spots)) == len(spots)  # no node on another
        shown = {node for placed in drawn for node in placed.at if node.startswith("n")}
        computed = {f"n{line.op}" for line in lines if line.gives[0][1]}
        assert shown == computed


def _no_formulas() -> Any:
    from hightide.tools.inspect.graph_trace import Formulas

    return Formulas({}, {}, ())


# ---- pieces


def test_repeats() -> None:
    assert find_repeat("xyabcdabcdabcdz") == Repetition(2, 4, 3)
    assert find_repeat("ababab") is None  # two ops are no layer
    assert find_repeat("abcdefghijklmnop") is None
    assert find_repeat("") is None
    repeat = find_repeat("--" + "abcde" * 30 + "!")
    assert repeat == Repetition(2, 5, 30) and repeat.layer(1) is None and repeat.layer(7) == 1 and repeat.end == 152


def test_counts() -> None:
    assert [counted(n, "part") for n in (0, 1, 2)] == ["0 parts", "1 part", "2 parts"]
    assert counted(3, "dispatch") == "3 dispatches"


def test_units() -> None:
    assert [size(n) for n in (0, 999, 1000, 12_345, 123_456_789, 1_500_000_000)] == [
        "0 B", "999 B", "1.00 kB", "12.3 kB", "123 MB", "1.50 GB",
    ]  # fmt: skip
    assert [count(n) for n in (7, 1234, 3_730_000_000)] == ["7", "1.23 k", "3.73 G"]


def test_arguments_have_the_names_that_ops_give_them() -> None:
    (part,) = open_file(LLAMA).parts
    lines = {line.name: line for line in list_graph(part.graph, _no_formulas(), part.names)}
    norm = lines["et_vk.rms_norm.default"].arguments
    assert [argument.name for argument in norm] == ["x", "weight", "eps"] and norm[1].text == "const float32[64]"
