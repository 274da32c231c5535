"""The self-test of `hightide doctor`: it passes, finds planted faults, tries every route, and is kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_choice import FakeChoice
from planted import change_kernels

from hightide.cli import main
from hightide.gpu.device import Device
from hightide.ops.case import Case, In, all_cases
from hightide.tools.doctor import examination
from hightide.tools.doctor.selftest import Trial, run_trial, self_test, trials

SOME = [case for case in all_cases() if case.name in ("relu", "rms_norm", "softmax_live", "add_bools", "sum_two")]


@pytest.fixture
def fake() -> Iterator[FakeChoice]:
    with FakeChoice() as choice:
        yield choice


def test_case_names_are_unique() -> None:
    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names)) and len(SOME) == 5


def test_it_passes_and_tells_its_progress(device: Device) -> None:
    told: list[tuple[int, int]] = []
    results = self_test(device, SOME, lambda done, total: told.append((done, total)))
    assert [result.problem for result in results] == [""] * len(results)
    assert told == [(n, len(results)) for n in range(len(results))]
    assert {"rms_norm_vec4", "softmax"} <= {route for result in results for route in result.routes}


def test_it_finds_a_planted_fault(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    change_kernels(monkeypatch, lambda source: source.replace("i < params.size;", "i <= params.size;"))
    wrong = [r for r in self_test(Device(device.adapter), SOME) if r.problem]
    assert {result.trial.case.name for result in wrong} == {"softmax_live"} and "softmax_live at" in wrong[0].problem


def test_a_kernel_that_does_not_compile_is_a_result(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    change_kernels(monkeypatch, lambda source: "fn main( {")
    (result,) = self_test(Device(device.adapter), SOME[:1])
    assert "does not compile" in result.problem


def test_a_fault_of_the_program_is_a_result_too(device: Device) -> None:
    case = Case("odd", "aten.relu.default", (In(("S", 3)), In(("S", 3)), "no"), out="nothing")
    assert run_trial(Trial(case), device).problem.startswith("odd: ")


def test_every_option_that_leads_to_other_kernels_is_tried(fake: FakeChoice, device: Device) -> None:
    case = Case("fake", fake.op, (In(("S", 5)),))
    names = [trial.name for trial in trials(device, [case, *SOME[:1]])]
    assert names == ["fake", "fake test.route=other", SOME[0].name]
    results = self_test(device, [case])
    assert [result.problem for result in results] == ["", ""]
    assert results[0].routes == {"elementwise"} and results[1].routes == {"strided"}


def test_it_is_kept_until_a_kernel_changes(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def two(device: Device, progress: Any = None) -> Any:
        ran.append(device)
        return self_test(device, SOME[:2])

    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path)
    monkeypatch.setattr(examination, "self_test", two)
    first, second = examination.tested(device), examination.tested(device)
    assert len(ran) == 1 and not first.before and second.before
    assert (first.trials, first.routes, first.failures) == (second.trials, second.routes, second.failures) == (2, 2, ())
    assert not examination.tested(device, fresh=True).before and len(ran) == 2
    monkeypatch.setattr("hightide.tools.doctor.examination.kernels_digest", lambda: "others")
    assert not examination.tested(device).before and len(ran) == 3

    def doctor(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["hightide", "doctor", *args])
        with pytest.raises(SystemExit) as done:
            main()
        return int(done.value.code or 0), capsys.readouterr().out

    code, out = doctor("--json", "--device", "0")
    found = json.loads(out)
    assert code == 0 and found["healthy"] and found["self_test"]["trials"] == 2 and found["models"]
    code, out = doctor("--no-test")
    assert code == 0 and device.adapter.name in out and "Self-test" not in out and "largest tensor" in out
    monkeypatch.setattr(
        examination, "tested", lambda *_: examination.SelfTest(2, 2, (("relu", "relu at S=1: wrong"),), 1.0)
    )
    code, out = doctor()
    assert code == 1 and "1 wrong" in out and "relu at S=1: wrong" in out
