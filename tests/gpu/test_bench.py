"""The bench on an adapter: that it measures the engine itself, leaves sessions as they were, and adds up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from compare import compare
from peerbench.built_for import measure_built_for
from peerbench.matmul import Matmul, matmul_shares
from peerbench.peer import KINDS, Kind, Peer, PeerError, interpreter
from peerbench.random_llama import RandomLlama, random_llama
from peerbench.reading_share import attention_share, linear_share

import hightide
from hightide.cli import main
from hightide.gpu.device import Device
from hightide.gpu.limits import Limits
from hightide.tools.bench.bench_engine import BenchEngine, prompt
from hightide.tools.bench.host import counted, measure_host
from hightide.tools.bench.kernel_shares import kernel_shares

pytestmark = pytest.mark.xdist_group("bench")  # one engine for all
SMALL = RandomLlama(dim=64, layers=2, heads=2, kv_heads=1, ffn=96, vocab=320, context=2048)
LIMITS = Limits(10.0, 12.0, 100.0, 5.0, 80.0, 500.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_llama(SMALL, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def engine(model: Path, device: Device) -> BenchEngine:
    return BenchEngine(model, context=160, chunk=32, device=str(device.adapter.index))


def test_what_is_timed_is_what_the_engine_does(engine: BenchEngine, model: Path) -> None:
    tokens = prompt(70, SMALL.vocab)  # in three chunks
    wanted = hightide.LLM(model, context=160).generate(tokens, max_tokens=9, stop_ids=[]).tokens
    first = engine.prefill(tokens)
    later = [*engine.decode(3).ids, *engine.decode(5).ids]
    assert [*first.ids, *later][: len(wanted)] == wanted and len(wanted) > 3
    assert first.samples[0].wall_ms > 0 and first.samples[0].cpu_ms > 0


def test_a_filled_cache_changes_what_is_decoded(engine: BenchEngine) -> None:
    engine.session.reset()
    engine.start_at(100)
    empty = engine.decode(4).ids
    engine.fill()
    engine.start_at(100)
    assert engine.decode(4).ids != empty


def test_host_counts_a_steady_step(engine: BenchEngine) -> None:
    host = measure_host(engine, position=40)
    ticket = engine.straight.launch([1], 40)
    engine.straight.collect(ticket)
    assert host.dispatches == len(ticket.recording.commands) > 10
    assert host.objects == 0 and host.read_bytes == 4
    assert 4 <= host.written_bytes < 256
    assert host.waits_us > 0 and 0 < host.host_us < host.step_ms * 1e3
    assert 0 < host.known_level_us < host.new_level_ms * 1e3


def test_bytes_are_counted_while_it_runs(engine: BenchEngine) -> None:
    engine.decode(1)
    with counted(engine.session) as traffic:
        engine.decode(2)
    assert traffic.read == 8 and traffic.written >= 8
    with counted(engine.session) as traffic:
        pass
    assert (traffic.written, traffic.read) == (0, 0)


def test_kernels_add_up_to_the_run(engine: BenchEngine) -> None:
    usual = engine.session.recorder
    shares = kernel_shares(engine, LIMITS, contexts=(0, 100, 4096), runs=2)
    assert engine.session.recorder is usual
    runs = {share.run for share in shares}
    assert runs == {"prefill 32", "decode at 128", "decode at 100"}
    for run in runs:
        assert sum(share.part for share in shares if share.run == run) == pytest.approx(1)
    assert any(share.family == "linear" for share in shares) and all(share.share > 0 for share in shares)
    calls = sum(share.calls for share in shares if share.run == "decode at 128")
    assert calls == measure_host(engine).dispatches


def test_one_token_on_a_long_and_on_a_short_graph(model: Path, device: Device) -> None:
    found = measure_built_for(model, device=str(device.adapter.index), software=True, pairs=4)
    assert found.low <= found.ratio <= found.high and found.ms > 0


def test_the_matmul_checks_its_result(device: Device) -> None:
    matmul = Matmul(device)
    assert len(matmul.matmul(1, 2).samples) == 2
    matmul._first_column += 1
    with pytest.raises(AssertionError):
        matmul.matmul(1, 1)


def test_kernels_beside_reading(device: Device) -> None:
    assert linear_share(device) > 0 and attention_share(device, 256) > 0
    shares = matmul_shares(Matmul(device), LIMITS, (1,), runs=2)
    assert {share.run for share in shares} == {"matmul M=1"} and sum(share.part for share in shares) == pytest.approx(1)


def test_the_whole_command(
    model: Path,
    device: Device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path)
    sizes = ["--prefill", "4,40", "--decode", "0,60,100000"]
    arguments = [str(model), "--quick", "--json", *sizes]
    monkeypatch.setattr(sys, "argv", ["hightide", "bench", *arguments, "--device", str(device.adapter.index)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    told = json.loads(capsys.readouterr().out)
    (found,) = told["models"]
    measured = {(row["what"], row["size"]) for row in found["rows"]}
    assert measured == {("prefill", 4), ("prefill", 40), ("decode", 0), ("decode", 60)}  # those that fit
    assert found["start"]["total_s"] > found["start"]["load_s"] > 0 and found["start"]["peak_host_bytes"] > 1e7
    assert told["machine"]["adapter"] == device.adapter.name and told["limits"]["read_gb_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "model" in kind.takes], ids=lambda kind: kind.name)
def test_installed_peers_run_the_same_model(kind: Kind, model: Path, device: Device) -> None:
    try:
        interpreter(kind)
    except PeerError as error:
        pytest.skip(str(error))
    tokens = prompt(2, SMALL.vocab)  # longer ones go wrong in ONNX Runtime's attention on llvmpipe
    ours = BenchEngine(model, context=64, device=str(device.adapter.index))
    with Peer(kind, model) as peer:
        assert peer.prefill(tokens).ids == ours.prefill(tokens).ids
        assert len(peer.decode(3).samples) == 3


def test_the_comparison_without_peers(
    model: Path, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path)
    folder = tmp_path / "results"
    compare([str(model)], quick=True, peers=False, out=folder, device=str(device.adapter.index), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert json.loads((folder / "bench.json").read_text()) == told and told["models"][0]["shared"] == []
    assert "on hightide" in (folder / "bench.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "matmul" in kind.takes], ids=lambda kind: kind.name)
def test_installed_peers_multiply(kind: Kind) -> None:
    try:
        interpreter(kind)
    except PeerError as error:
        pytest.skip(str(error))
    with Peer(kind) as peer:  # it checks its own result
        assert len(peer.matmul(1, 2).samples) == 2
