"""The bench without an adapter: its random model, its statistics, the wire to peers, its tables."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import update_docs
from gguf import GGMLQuantizationType, quants
from peerbench import peer as peers
from peerbench import plots
from peerbench.built_for import BuiltFor
from peerbench.goals import goals
from peerbench.peer import KINDS, Kind, Peer, PeerError, interpreter
from peerbench.random_llama import RandomLlama, random_llama
from peerbench.report import as_json, markdown, tables, write_results
from peerbench.suite import QUICK, ComparedModel, Result, wanted_kinds

from hightide.cli import main
from hightide.errors import HightideError
from hightide.formats.gguf import read_gguf
from hightide.gpu.limits import Limits
from hightide.tools.bench.bench_engine import NAME, prompt
from hightide.tools.bench.host import Host
from hightide.tools.bench.kernel_shares import KernelShare
from hightide.tools.bench.model_bench import ModelResult
from hightide.tools.bench.samples import TimeSample, WorkRow, find_row, spread

SMALL = RandomLlama(dim=64, layers=2, heads=4, kv_heads=2, ffn=96, vocab=320, context=64)


# ---- the random model


def test_random_llama_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    first, again = random_llama(SMALL, tmp_path / "a"), random_llama(SMALL, tmp_path / "b")
    other = random_llama(replace(SMALL, seed=1), tmp_path / "a")
    assert first.read_bytes() == again.read_bytes()
    assert first.name != other.name and first.read_bytes() != other.read_bytes()


def test_random_llama_is_four_bits_throughout(tmp_path: Path) -> None:
    file = read_gguf(random_llama(SMALL, tmp_path))
    kinds = {name: tensor.type for name, tensor in file.tensors.items()}
    assert {kind for name, kind in kinds.items() if "norm" not in name} == {"Q4_0"}
    assert len(kinds) == 3 + 9 * SMALL.layers
    assert file.get("block_count") == SMALL.layers and len(file.metadata["tokenizer.ggml.tokens"]) == SMALL.vocab


# ---- what peers compute with


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, peers.SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_peers_get_the_very_weights_of_a_q4_0_tensor() -> None:
    weights = np.random.default_rng(3).standard_normal((5, 96), np.float32)
    exact = quants.dequantize(quants.quantize(weights, GGMLQuantizationType.Q4_0), GGMLQuantizationType.Q4_0)
    packed, scales = script("quantized").quantize_q4(exact)
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(5, 3, 32)
    np.testing.assert_allclose(((nibbles - 8.0) * scales[..., None]).reshape(5, 96), exact, rtol=1e-6)


def test_blocks_of_zeros_stay_zeros() -> None:
    packed, scales = script("quantized").quantize_q4(np.zeros((2, 32), np.float32))
    assert not scales.any() and packed.shape == (2, 16)


# ---- statistics


def test_spread_is_the_median_and_the_middle_half() -> None:
    found = spread([4.0, 1.0, 100.0, 2.0, 3.0])
    assert (found.median, found.low, found.high, found.count) == (3.0, 2.0, 4.0, 5)
    assert spread([7.0]).low == spread([7.0]).high == 7.0


def test_rates_count_the_prompt_or_one_token() -> None:
    sample = TimeSample(cpu_ms=10.0, wall_ms=20.0)
    assert WorkRow("prefill", 128, NAME, samples=[sample]).rate == 6400
    assert WorkRow("decode", 128, NAME, samples=[sample]).rate == 50
    assert WorkRow("decode", 128, NAME, samples=[sample]).milliseconds(software=True) == 10
    assert WorkRow("decode", 128, NAME, samples=[sample]).milliseconds(software=False) == 20
    assert sample.shared(4) == TimeSample(2.5, 5.0)


def test_a_row_without_samples_is_not_found() -> None:
    assert find_row([WorkRow("decode", 128, NAME)], "decode", 128, NAME) is None


@pytest.mark.parametrize("length, vocab", [(1, 2), (128, 320), (1024, 32000)])
def test_prompts_are_within_the_vocabulary(length: int, vocab: int) -> None:
    tokens = prompt(length, vocab)
    assert len(tokens) == length and tokens[0] == 1 and all(0 <= token < vocab for token in tokens)


# ---- the wire

PEER = """
import sys
sys.path.insert(0, {folder!r})
from wire import serve

class Fake:
    def prefill(self, watch, tokens):
        print("a library that talks")
        with watch:
            pass
        return [sum(tokens)]

    def decode(self, watch, count):
        raise ValueError("no\\nmore")

def open_peer():
    {opening}
    return Fake(), {{"device": "none", "version": "fake 1"}}

serve(open_peer)
"""


def start(
    monkeypatch: pytest.MonkeyPatch, folder: Path, text: str = "", opening: str = "pass", patience: float = 20
) -> Peer:
    """A peer with this script, run by this Python."""
    (folder / "fake.py").write_text(text or PEER.format(folder=str(peers.SCRIPTS), opening=opening))
    monkeypatch.setattr(peers, "SCRIPTS", folder)
    monkeypatch.setattr(peers, "interpreter", lambda kind: sys.executable)
    return Peer(Kind("Fake", "fake", "fake.py", (), frozenset({"model"})), patience=patience)


def test_a_peer_takes_orders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with start(monkeypatch, tmp_path) as peer:
        assert peer.about == {"device": "none", "version": "fake 1"}
        measured = peer.prefill([1, 2, 3])
        assert measured.ids == (6,) and len(measured.samples) == 1 and measured.samples[0].cpu_ms >= 0
        with pytest.raises(PeerError, match="Fake is left out: this peer has no matmul"):
            peer.matmul(1, 1)
        assert peer.prefill([4]).ids == (4,)  # an order it does not know is not the end
        with pytest.raises(PeerError, match=r"left out: no$"):
            peer.decode(1)
    assert peer._process.poll() is not None


def test_a_peer_that_is_wrong_about_its_device_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="Fake is left out: it would run on the CPU"):
        start(monkeypatch, tmp_path, opening="raise ValueError('it would run on the CPU')")


@pytest.mark.parametrize(
    "text, said",
    [
        ("import sys; sys.exit('the library is not there')", "it ended .the library is not there."),
        ("print('hello', flush=True); input()", "it said 'hello'"),
        ("input()", "it did not answer for 1 s"),
    ],
)
def test_a_peer_that_does_not_speak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PeerError, match=said):
        start(monkeypatch, tmp_path, text, patience=1)


def test_missing_peers_are_said_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for kind in KINDS:
        with pytest.raises(PeerError) as caught:
            interpreter(kind)
        wanted = "needs node" if kind.node else f"`python benchmarks/compare.py --setup {kind.key}`"
        assert wanted in str(caught.value) and "\n" not in str(caught.value)


def test_peers_by_name() -> None:
    assert wanted_kinds(None) == list(KINDS) and wanted_kinds([]) == []
    assert {kind.name for kind in wanted_kinds(["tinygrad"])} == {"tinygrad WebGPU"}
    with pytest.raises(HightideError, match="there is no peer 'mlx'"):
        wanted_kinds(["mlx"])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_node_peer_parses() -> None:
    done = subprocess.run(["node", "--check", str(peers.SCRIPTS / "llama_cpp.mjs")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- goals and tables


def row(what: str, size: int, engine: str, cpu_ms: float, on_cpu: bool = False) -> WorkRow:
    return WorkRow(what, size, engine, on_cpu, [TimeSample(cpu_ms, cpu_ms / 2)] * 3)


def result(peer_ms: float = 80.0) -> Result:
    host = Host(85, 60.0, 40.0, 50.0, 16.0, 8.0, 32.0, 4.0, 0.0, 1.5, 3.0)
    attention = KernelShare("decode at 4096", "attention", "attend", 8, 1.0, 0.3, 5.0, 5.0, "memory", 0.5)
    gemv = KernelShare("matmul M=1", "linear", "q4_gemv", 1, 2.0, 1.0, 6.0, 20.0, "memory", 0.6)
    shared = [
        row("prefill", 128, NAME, 480.0),
        row("prefill", 128, "llama.cpp Vulkan", 1800.0),
        row("decode", 128, NAME, 16.0),
        row("decode", 128, "llama.cpp Vulkan", peer_ms),
        row("decode", 128, "llama.cpp CPU", 2.0, on_cpu=True),
    ]
    rows = [row("prefill", 128, NAME, 480.0), row("decode", 128, NAME, 16.0), row("decode", 4096, NAME, 40.0)]
    start = {"total_s": 2.0, "load_s": 1.0, "peak_host_bytes": 300_000_000}
    about = {"llama.cpp Vulkan": {"version": "llama.cpp 1", "device": "an adapter"}}
    memory = {"weights": 30_000_000, "state": 5_000_000}
    own = ModelResult("random-llama-1.gguf", 1 << 25, 8, rows, host, start, memory, [attention])
    model = ComparedModel(own, shared, about)
    machine = {
        "adapter": "an adapter",
        "driver": "a driver",
        "backend": "Vulkan",
        "processor": "a processor",
        "cores": 2,
        "versions": {"wgpu": "0.32.0"},
        "when": "2026-01-01",
        "load": 0.1,
    }
    return Result(
        machine,
        QUICK,
        Limits(10.0, 12.0, 100.0, 5.0, 80.0, 500.0),
        software=True,
        models=[model],
        matmul=[row("matmul", 1, NAME, 10.0), row("matmul", 1, "ONNX Runtime WebGPU", 31.0)],
        matmul_kernels=[gemv],
        built_for=BuiltFor(2048, 1.01, 0.99, 1.03, 5.0, 24),
    )


def test_goals_are_met_or_not() -> None:
    found = {goal.what: goal for goal in goals(result(peer_ms=80.0))}
    decode = found["random Llama: decode at 128 beside llama.cpp Vulkan"]
    assert decode.measured == "5.00 ×" and decode.met and decode.ratio == 1.25
    assert found["random Llama: prefill 128 beside llama.cpp Vulkan"].measured == "3.75 ×"
    assert found["q4 matmul, M = 1 beside ONNX Runtime WebGPU"].met
    assert (
        found["S = 1 on a graph built for 2048"].met and found["S = 1 on a graph built for 2048"].measured == "+1.0 %"
    )
    assert found["attention, decode at 4096"].ratio == 1.0  # 5 of 10 GB/s, and half is the goal
    assert not found["random Llama: dispatches a token"].met  # 85, and 8 x 8 + 6 = 70 are allowed
    slower = {goal.what: goal for goal in goals(result(peer_ms=63.0))}
    assert not slower["random Llama: decode at 128 beside llama.cpp Vulkan"].met


def test_the_host_is_judged_on_smollm2_and_other_models_on_nothing() -> None:
    measured = result()
    (model,) = measured.models
    names = ("SmolLM2-135M-Instruct.Q4_1.gguf", "mine.gguf")
    measured.models = [replace(model, own=replace(model.own, name=name)) for name in names]
    found = {goal.what: goal for goal in goals(measured)}
    assert found["SmolLM2-135M-Instruct: host, in all"].measured == "0.6%"
    assert found["SmolLM2-135M-Instruct: host, while the GPU waits"].measured == "0.59 µs"
    assert not any("mine" in what for what in found)


def test_shares_come_from_the_kernels_own_benchmarks_where_there_are_any() -> None:
    measured = result()
    measured.shares = {"gemv": 0.72, "attention 4096": 0.4}
    found = {goal.what: goal for goal in goals(measured)}
    assert found["q4 GEMV"].goal == "≥ 60 % of reading its weights" and found["q4 GEMV"].measured == "72%"
    assert not found["attention, decode at 4096"].met
    assert {d.what: d for d in goals(result())}["q4 GEMV"].goal == "≥ 60 % of streaming its weights"


def test_without_peers_nothing_is_claimed_about_them() -> None:
    alone = result()
    alone.models[0].shared = []
    alone.matmul = []
    assert not any("llama.cpp" in goal.what or "ONNX" in goal.what for goal in goals(alone))
    assert not any("peers" in table.title for table in tables(alone, kernels=False))


def test_tables_are_rectangular_and_markdown_shows_them() -> None:
    text = markdown(result(), [Path("peers.png")])
    for table in tables(result(), kernels=True):
        assert table.rows and {len(cells) for cells in table.rows} == {len(table.columns)}
        assert f"## {table.title}" in text
    assert "![peers](peers.png)" in text and "llama.cpp CPU (one thread)" in text


def test_results_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write_results(result(), tmp_path)
    assert {path.name for path in written} == {"bench.json", "bench.md", "curves.png", "peers.png"}
    assert all((tmp_path / name).read_bytes()[:4] == b"\x89PNG" for name in ("curves.png", "peers.png"))
    told = json.loads((tmp_path / "bench.json").read_text())
    assert told["compared_by"] == "cpu_ms" and told["models"][0]["rows"][0]["cpu_ms"]["median"] == 480


def test_without_matplotlib_there_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    found = result()
    assert [path.name for path in write_results(found, tmp_path)] == ["bench.json", "bench.md"]
    assert "hightide[bench]" in found.notes[-1] and found.notes[-1] in (tmp_path / "bench.md").read_text()


def test_the_page_takes_its_tables_from_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    write_results(result(), tmp_path / "results")
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text("a\n<!-- bench: machine -->\nold\n<!-- end -->\n<!-- bench: Nothing -->\nkept\n<!-- end -->\n")
    monkeypatch.setattr(update_docs, "HERE", tmp_path)
    monkeypatch.setattr(update_docs, "PAGE", page)
    update_docs.main()
    once = page.read_text()
    assert "a driver" in once and "old" not in once and "kept" in once
    update_docs.main()
    assert page.read_text() == once


def test_every_table_of_the_page_has_its_place_in_a_report() -> None:
    page = (Path(update_docs.__file__).parent.parent / "docs" / "performance.md").read_text("utf-8")
    told = result()
    (model,) = told.models
    told.models.append(replace(model, own=replace(model.own, name="SmolLM2-135M-Instruct.Q4_1.gguf")))
    known = update_docs.sections(markdown(told, []))
    assert {match["title"] for match in update_docs.PLACE.finditer(page)} <= set(known)


def test_json_has_no_numbers_that_json_lacks() -> None:
    json.dumps(as_json(result()), allow_nan=False)


# ---- the command


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["no-such.gguf"], "no-such.gguf is not a file"),
        (["--prefill", "0"], "--prefill takes lengths from 1 up"),
        (["--decode", "a,b"], "--decode takes lengths from 0 up"),
        ([__file__, "--device", "cpu"], "the bench needs a WebGPU adapter"),
    ],
)
def test_errors_are_one_sentence(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hightide", "bench", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    errors = capsys.readouterr().err.strip().splitlines()
    assert left.value.code == 1 and errors[-1].startswith("hightide: ") and said in errors[-1]
