"""Tuning: the faster option wins, a tie keeps the default, and what was chosen is found again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_choice import FakeChoice

from hightide.cli import main
from hightide.gpu.device import Device
from hightide.gpu.measurements import adapter_key, save
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.ops.choices import CHOICES, Choice, Choices
from hightide.runtime.device_routes import TUNED, tuned_routes
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.tune import tuner as tuning
from hightide.tools.tune.tuner import Verdict, decide, different, forget, keep, known, tune
from hightide.tools.tune.workloads import Workload, workloads
from hightide.traits import SOFTWARE, Traits


def workload(op: str = FakeChoice.op) -> Workload:
    def build(traits: Traits) -> tuple[Graph, list[np.ndarray]]:
        b = GraphBuilder()
        x = b.input((4096,))
        return b.graph(b.call(op, x)), [np.ones(4096, np.float32)]

    return Workload(op, build)


@pytest.mark.parametrize(
    ("slow", "default", "chosen"),
    [
        ("usual", "usual", "other"),
        ("other", "usual", "usual"),
        ("usual", "other", "other"),
        ("other", "other", "usual"),
    ],
)
def test_the_faster_option_is_chosen(slow: str, default: str, chosen: str, device: Device) -> None:
    with FakeChoice(slow, default) as fake:
        told: list[tuple[int, int]] = []
        loads = [workload(), workload("aten.relu.default")]  # the second one does not depend on the choice
        (verdict,) = tune(device, [fake.choice], loads, lambda done, total: told.append((done, total)))
    assert verdict.chosen == chosen and verdict.default == default
    assert list(verdict.workloads) == [FakeChoice.op] and told == [(0, 2), (1, 2)]
    assert verdict.gain > 3 if chosen != default else verdict.gain == 1


def choice(*options: str, possible: Callable[[Traits, str], bool] = lambda traits, option: True) -> Choice:
    made = Choice("test.decide", options, lambda traits: options[0], possible)
    del CHOICES[made.name]
    return made


def test_a_tie_keeps_the_default() -> None:
    def chosen(*times: dict[str, float]) -> str:
        return decide(choice("a", "b", "c"), "a", {str(n): t for n, t in enumerate(times)}).chosen

    assert chosen({"a": 1.0, "b": 0.96, "c": 1.0}) == "a"
    assert chosen({"a": 1.0, "b": 0.94, "c": 0.95}) == "b"
    assert chosen({"a": 1.0, "b": 0.5, "c": 2.0}, {"a": 1.0, "b": 1.9, "c": 0.4}) == "c"  # 0.97 and 0.89 over both
    assert chosen({"a": 1.0, "b": 0.5}, {"a": 1.0}) == "a"  # b did not run everywhere
    assert chosen() == "a"


def test_only_options_that_can_run_and_differ_are_measured(device: Device) -> None:
    with FakeChoice() as fake:
        graph, inputs = workload().build(SOFTWARE)
        assert different(graph, inputs, fake.choice, Choices()) == ["usual", "other"]
        assert different(*workload("aten.relu.default").build(SOFTWARE), fake.choice, Choices()) == ["usual"]
        fake.choice = Choice("test.route", ("usual", "other"), lambda t: "usual", lambda t, option: option == "usual")
        assert different(graph, inputs, fake.choice, Choices()) == ["usual"]


def test_what_changes_the_numbers_is_not_tuned(device: Device) -> None:
    with FakeChoice("usual") as fake:
        inexact = Choice("test.route", ("usual", "other"), lambda traits: "usual", exact=False)
        assert tune(device, [inexact], [workload()]) == [] and fake.choice.exact


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path)
    monkeypatch.delenv("HIGHTIDE_TUNED")
    return tmp_path


def routes(device: Device) -> set[str]:
    graph, inputs = workload().build(device.traits)
    return {step.dispatch.kernel.name for step in GpuSession(graph, device).level(inputs)[1].steps}


def test_what_was_chosen_is_found_again(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict("test.route", "other", "usual", {"usual": 1.0, "other": 0.5}, {"w": {"usual": 1.0, "other": 0.5}})
    with FakeChoice():
        adapter, fresh = device.adapter, Device(device.adapter)
        assert tuned_routes(adapter) == {} and known(adapter) == [] and routes(fresh) == {"elementwise"}
        keep(fresh, [verdict])
        assert routes(fresh) == {"strided"}  # at once, and in other processes
        later = Device(adapter)
        assert tuned_routes(adapter) == {"test.route": "other"} and known(adapter) == [verdict]
        assert routes(later) == {"strided"}
        graph, inputs = workload().build(device.traits)
        forced = GpuSession(graph, later, choices={"test.route": "usual"})
        assert forced.level(inputs)[1].steps[0].dispatch.kernel.name == "elementwise"
        monkeypatch.setenv("HIGHTIDE_TUNED", "0")
        assert tuned_routes(adapter) == {}
        monkeypatch.delenv("HIGHTIDE_TUNED")
        monkeypatch.setattr("hightide.gpu.measurements.hightide_version", lambda: "another")
        assert tuned_routes(adapter) == {}
        monkeypatch.undo()
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: folder)
    assert forget(device.adapter) and not forget(device.adapter) and known(device.adapter) == []


@pytest.mark.parametrize("damage", ["[]", '{"%s": 3}', '{"%s": {"chosen": [1], "verdicts": [{"x": 1}]}}', "{"])
def test_a_damaged_file_means_the_defaults(damage: str, device: Device, folder: Path) -> None:
    (folder / TUNED).write_text(damage % adapter_key(device.adapter) if "%s" in damage else damage)
    assert tuned_routes(device.adapter) == {} and known(device.adapter) == []


def test_an_option_that_is_gone_is_passed_over(device: Device, folder: Path) -> None:
    with FakeChoice():
        save(TUNED, {adapter_key(device.adapter): {"chosen": {"test.route": "gone", "no.such.choice": "x"}}})
        assert tuned_routes(device.adapter) and routes(device) == {"elementwise"}


def test_the_command(
    device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hightide(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hightide", "tune", *args])
        with pytest.raises(SystemExit) as done:
            main()
        return int(done.value.code or 0), *capsys.readouterr()

    with FakeChoice(slow="usual") as fake:
        monkeypatch.setattr(tuning, "CHOICES", {"test.route": fake.choice})
        monkeypatch.setattr(tuning, "workloads", lambda: [workload()])
        code, out, err = hightide("--show")
        assert code == 1 and not out and "run `hightide tune`" in err
        code, out, _ = hightide()
        assert code == 0 and "test.route" in out and "× faster" in out
        found = json.loads(hightide("--show", "--json")[1])
        assert found["adapter"] == device.adapter.name and found["choices"][0]["chosen"] == "other"
        assert hightide("--reset")[0] == 0 and hightide("--show")[0] == 1
    assert hightide("--device", "cpu")[0] == 1


def test_the_workloads_run(device: Device) -> None:
    names = [load.name for load in workloads()]
    assert len(names) == len(set(names))
    for load in workloads():
        if load.name in ("linear q4, 8 rows", "attention decode after 512, depth 64"):
            graph, inputs = load.build(device.traits)
            (out,) = GpuSession(graph, device).run(inputs)
            assert np.isfinite(out).all() and np.abs(out).max() > 0


def test_every_exact_choice_has_a_workload(device: Device) -> None:
    """Otherwise `hightide tune` would not measure it on any adapter."""
    gpu = Traits(f16=True, subgroups=True, subgroup_size=32, invocations=1024, workgroup_bytes=32768)
    met = set()
    for load in workloads():
        for traits in (SOFTWARE, device.traits, gpu):
            graph, inputs = load.build(traits)
            met |= {c.name for c in CHOICES.values() if len(different(graph, inputs, c, Choices(traits))) > 1}
    assert {c.name for c in CHOICES.values() if c.exact and not c.by_caller} <= met
