"""Kernels prove themselves: on a driver that spoils one, programs and models still answer right, and say so."""

from __future__ import annotations

import json
import threading
import tracemalloc
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llamas import INPUTS, call, llama_session, small_llama
from planted import WrongDriver
from schedules import PROGRAMS, error_of_range, steps

from hightide import LLM, DeviceError, load
from hightide.gpu import measurements
from hightide.gpu.compile_ahead import CompileAhead
from hightide.gpu.device import Adapter, Device
from hightide.gpu.pipelines import pipelines
from hightide.ops.builder import GraphBuilder
from hightide.ops.case import all_cases, cases_of
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Planner
from hightide.runtime import prover
from hightide.runtime.build import build_session
from hightide.runtime.case_graph import LEVELS, CaseGraph
from hightide.runtime.device_routes import choices_for
from hightide.runtime.need import Need, needs_of
from hightide.runtime.proven_session import ENOUGH_KERNELS, ProvenSession
from hightide.runtime.small_graph import call_check
from hightide.runtime.verdicts import FILE, Verdicts
from hightide.tools.doctor.examination import keep_verdicts
from hightide.tools.doctor.selftest import self_test
from hightide.wgsl.shader import Shader

MODEL = Path(__file__).parent.parent / "models" / "llama_tied.gguf"
WRONG = "ignore:.*gives wrong results"


@pytest.fixture(autouse=True)
def proving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kernels are checked, and the verdicts are kept in a folder of the test's own."""
    monkeypatch.setenv("HIGHTIDE_PROVE", "1")
    monkeypatch.setattr("hightide.gpu.measurements.cache_folder", lambda: tmp_path)
    return tmp_path


def proven(device: Device, **options: Any) -> ProvenSession:
    return ProvenSession(small_llama(), device, **INPUTS, **options)


def agrees(session: Any, device: Device, *lengths: int) -> None:
    """Steps of these lengths give what a session gives whose kernels are not looked at."""
    with llama_session(device) as usual:
        position = 0
        for tokens in lengths:
            got, expected = (s.run(call(tokens, position))[0] for s in (session, usual))
            assert error_of_range(got, expected) < 1e-4
            position += tokens


def test_new_kernels_are_compiled_ahead(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counted(CompileAhead):
        def __init__(self, adapter: Adapter, shaders: Sequence[Shader], count: int) -> None:
            asked.append(len(set(shaders)))
            super().__init__(adapter, shaders, count)

    monkeypatch.setattr("hightide.runtime.proven_session.CompileAhead", Counted)
    monkeypatch.setattr("hightide.runtime.proven_session.helpers", lambda adapter: 2)
    own = Device(device.adapter)
    with proven(own) as session:
        agrees(session, own, 5, 1)
        assert len(asked) == 1 and asked[0] >= ENOUGH_KERNELS
        assert pipelines(own).before_first is None and not any("ahead" in t.name for t in threading.enumerate())
    with proven(own):
        assert len(asked) == 1  # they are known


def test_a_right_adapter_is_proven_once(device: Device, proving: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with proven(device) as session:
            agrees(session, device, 24, 1, 3, 1)
            found = {need.key for tokens in (24, 1, 3) for need in needs_of(session.level(call(tokens, 0))[1])}
        assert found <= Verdicts(device.adapter).right and not Verdicts(device.adapter).unproven
        monkeypatch.setattr(prover, "check_of", pytest.fail)  # the second start looks nothing up but the file
        with proven(device) as session:
            agrees(session, device, 24, 1, 3, 1)


def test_a_steady_step_costs_nothing_more(device: Device) -> None:
    with proven(device) as session:
        for position in range(3):
            session.run(call(1, position))
        created, planned = device.created, session.levels.planned
        for position in range(3, 6):
            session.run(call(1, position))
        assert (device.created, session.levels.planned) == (created, planned)


@pytest.mark.slow
def test_wrong_kernels_of_a_program_are_left_out(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = WrongDriver(monkeypatch, device.adapter, lambda name: name in ("attention_stream", "q4_gemv"))
    with pytest.warns(UserWarning, match="gives wrong results") as told:
        program = load(PROGRAMS / "llama_gqa.pte")
        for method, inputs, goldens in steps("llama_gqa"):
            for got, golden in zip(program.method(method)(*inputs), goldens, strict=True):
                assert error_of_range(got, golden) < 1e-4
    assert driver.spoiled == {"attention_stream", "q4_gemv"}
    said = [str(one.message) for one in told]
    for name, route in (("q4_gemv", "linear.gemv=broadcast"), ("attention_stream", "attention.decode=single")):
        (mine,) = [text for text in said if f"{name} of" in text and route in text]
        assert device.adapter.name in mine and device.adapter.driver in mine and "is used instead" in mine


def test_verdicts_are_kept_and_doctor_lists_them(
    device: Device, monkeypatch: pytest.MonkeyPatch, hightide: Any
) -> None:
    driver = WrongDriver(monkeypatch, device.adapter, lambda name: name == "q4_gemv")
    for _ in range(2):  # the second start knows it from the file
        with pytest.warns(UserWarning, match="q4_gemv of .*linear.gemv=broadcast is left out"):
            session = proven(driver.device)
        agrees(session, device, 5, 1)
        monkeypatch.setattr(prover, "check_of", lambda *_: None)
    code, out, _ = hightide("doctor", "--no-test", "--json")
    listed = json.loads(out)
    assert code == 1 and not listed["healthy"] and {one["routes"] for one in listed["wrong"]} == {"q4_gemv"}
    code, out, _ = hightide("doctor", "--no-test")
    assert code == 1 and "Kernels that give wrong results here" in out and "q4_gemv" in out


@pytest.mark.filterwarnings(WRONG)
def test_an_op_without_a_right_route_is_refused(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    WrongDriver(monkeypatch, device.adapter, lambda name: name.startswith("rms_norm"))
    program = load(PROGRAMS / "llama_gqa.pte")
    with pytest.raises(DeviceError, match=r"cannot be trusted for hightide\.linear_q4\.default.*device='cpu'"):
        program.method("forward")
    assert load(PROGRAMS / "llama_gqa.pte", device="cpu").method("forward")


def test_a_kernel_that_does_not_compile_is_left_out(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = WrongDriver(monkeypatch, device.adapter, lambda name: name == "q4_gemv")
    monkeypatch.setattr("planted.swapped_stores", lambda text: text + "broken")
    with pytest.warns(UserWarning, match="q4_gemv does not compile"):
        session = proven(driver.device)
    agrees(session, device, 1)


@pytest.mark.slow
def test_a_level_met_later_is_proven_then(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state stays, and the other route's scratch is added."""
    driver = WrongDriver(
        monkeypatch,
        device.adapter,
        lambda name: name == "attention_stream",
        lambda text: "sum_7_0" in text and "sum_8_0" not in text,  # eight query rows: three tokens of two heads
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = proven(driver.device)
        session.run(call(24, 0))
    with llama_session(device) as usual, pytest.warns(UserWarning, match="attention.decode=single is left out"):
        usual.run(call(24, 0))
        got, expected = (s.run(call(3, 24))[0] for s in (session, usual))
        assert error_of_range(got, expected) < 1e-4
    agrees(session, device, 24, 3, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings(WRONG)
def test_the_self_test_of_doctor_gives_the_same_verdicts(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in all_cases() if case.name in ("rms_norm", "q4")]
    keep_verdicts(device, self_test(device, cases))
    kept = Verdicts(device.adapter)
    assert kept.right and not kept.wrong
    driver = WrongDriver(monkeypatch, device.adapter, lambda name: name == "rms_norm_vec4")
    keep_verdicts(device, self_test(driver.device, cases[:1]))
    wrong = Verdicts(device.adapter).wrong
    assert wrong and {one.routes for one in wrong.values()} == {"rms_norm_vec4"}
    with pytest.raises(DeviceError, match=r"cannot be trusted for et_vk\.rms_norm"):
        proven(driver.device)


def test_it_can_be_switched_off(device: Device, monkeypatch: pytest.MonkeyPatch, proving: Path) -> None:
    for name, value in (("HIGHTIDE_PROVE", "0"), ("HIGHTIDE_DEBUG", "1")):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            with build_session(small_llama(), device, **INPUTS) as session:
                assert not isinstance(session, ProvenSession)
    assert not (proving / FILE).exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"%s": 7}', b'{"%s": {"right": 7}}', b"\xff\xfe"])
def test_a_damaged_file_is_no_verdict(damage: bytes, device: Device, proving: Path) -> None:
    key = json.dumps(measurements.adapter_key(device.adapter))[1:-1].encode()
    (proving / FILE).write_bytes(damage.replace(b"%s", key))
    kept = Verdicts(device.adapter)
    assert not (kept.right or kept.wrong or kept.unproven)
    kept.save()
    assert json.loads((proving / FILE).read_text())


def test_processes_add_to_each_others_verdicts(device: Device) -> None:
    with llama_session(device) as session:
        needs = list(needs_of(session.level(call(5, 0))[1]))
    one, other = Verdicts(device.adapter), Verdicts(device.adapter)
    one.note(needs[0], "")
    other.note(needs[1], "it is off")
    other.note(needs[2], None)
    one.save()
    other.save()
    kept = Verdicts(device.adapter)
    assert all(kept.known(need) for need in needs[:3]) and not kept.known(needs[3])
    assert [need for need, _ in kept.of(needs)] == needs[1:2]


def test_another_driver_has_no_verdicts_yet(device: Device) -> None:
    with llama_session(device) as session:
        need = next(iter(needs_of(session.level(call(5, 0))[1])))
    kept = Verdicts(device.adapter)
    kept.note(need, "")
    kept.save()
    newer = Adapter(**{**vars(device.adapter), "driver": "another"})
    assert Verdicts(device.adapter).known(need) and not Verdicts(newer).known(need)


@pytest.mark.slow
def test_every_op_is_right_on_its_own_with_random_inputs(device: Device) -> None:
    """A check made from a call of a program has no case to go by: it must never accuse a right kernel."""
    for case in [*all_cases(), *cases_of("blocks")]:
        built = CaseGraph(case, np.random.default_rng(7))
        planner = Planner(built.graph, choices=choices_for(device))
        specs = graph_inputs(built.graph, None, None)
        seen: set[Need] = set()
        for live in (LEVELS[0], LEVELS[2]):
            inputs = built.arrays(live)
            plan = planner.plan([array.shape for array in inputs], InputElements(inputs, specs))
            for need, op_call in needs_of(plan).items():
                if need in seen or need.op != case.op:
                    continue
                seen.add(need)
                check = call_check(need, planner, plan, op_call)
                assert check is not None, f"{case.name} has no check"
                assert not (problem := check.problem(device)), f"{case.name} at {live}: {problem}"


@pytest.mark.parametrize(("rows", "checked"), [(1 << 15, True), (1 << 20, False)])
def test_a_check_of_something_large_takes_little_memory(rows: int, checked: bool, device: Device) -> None:
    """`rows` of 16,384: what only a damaged program asks for is not checked."""
    b = GraphBuilder()
    planner = Planner(b.graph(b.call("aten.relu.default", b.input((rows, 1 << 14)))), choices=choices_for(device))
    plan = planner.plan([(rows, 1 << 14)], {})
    ((need, op_call),) = needs_of(plan).items()
    tracemalloc.start()
    try:
        check = call_check(need, planner, plan, op_call)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert (check is not None) == checked
    assert check is None or not check.problem(device)


def answer() -> list[int]:
    """Tokens of a small model: a prompt in one chunk, then one by one."""
    with LLM(MODEL, context=48) as llm:
        return llm.generate([5, 9, 2, 7, 11, 3], max_tokens=6).tokens


@pytest.mark.slow
@pytest.mark.filterwarnings(WRONG)
def test_a_model_answers_right_without_its_wrong_kernels(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("HIGHTIDE_PROVE", "0")
        expected = answer()
    driver = WrongDriver(monkeypatch, device.adapter, lambda name: name.endswith("_gemv") or name == "attention_stream")
    assert answer() == expected and len(driver.spoiled) > 1


@pytest.mark.slow
@pytest.mark.filterwarnings(WRONG)
def test_a_model_answers_right_whichever_kernel_is_spoiled(
    device: Device, proving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kernel of a small Llama in turn: the same tokens by another route, or a refusal where there is none."""
    keys: dict[str, set[str]] = {}  # of what needs a kernel, by its name
    note = Verdicts.note

    def noted(self: Verdicts, need: Need, problem: str | None) -> None:
        note(self, need, problem)
        for shader in need.shaders:
            keys.setdefault(shader.name, set()).add(need.key)

    monkeypatch.setattr(Verdicts, "note", noted)
    expected = answer()
    monkeypatch.setattr(Verdicts, "note", note)
    kept = Verdicts(device.adapter)
    outcomes: dict[str, str] = {}
    for name in sorted(keys):
        known = {"wrong": {}, "unproven": [], "right": sorted(kept.right - keys[name])}
        (proving / FILE).write_text(json.dumps({kept.key: known}))
        with monkeypatch.context() as patched:
            driver = WrongDriver(patched, device.adapter, lambda label, name=name: label == name)
            try:
                outcomes[name] = "right" if answer() == expected else "wrong"
            except DeviceError as error:
                outcomes[name] = "refused" if "cannot be trusted" in str(error) else str(error)
            assert driver.spoiled == {name}
    assert set(outcomes.values()) == {"right", "refused"}, outcomes
    routed = {name for name in keys if name.endswith(("_gemv", "_gemm", "_small")) or name.startswith("attention")}
    assert routed and {outcomes[name] for name in routed} == {"right"}, outcomes
