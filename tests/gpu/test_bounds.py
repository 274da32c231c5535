"""No kernel reads or writes outside the live part of a tensor, whatever numbers the tensors hold.

Every case runs with every route on kernels that report such accesses (`bounds.py`): with usual numbers, and with
indices and floats that no program should have. Indices are computed on the GPU, where the host cannot check them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bounds import GuardedDevice, Guards, bounded_sessions, forget_kernels
from op_runner import LEVELS, Built, of_four_lanes
from planted import change_kernels

from hightide.errors import InputError
from hightide.gpu.device import Device
from hightide.ops.case import CONTEXT, Case, In, all_cases, cases_of
from hightide.ops.linear.routes import GEMM, GEMV
from hightide.planning.levels import InputElements
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.doctor.selftest import trials

CASES = [*all_cases(), *cases_of("blocks")]
QUICK = {
    "embedding",
    "embedding_q4",
    "embedding_q8_0",
    "gather",
    "gather_bytes",
    "index",
    "rotary",
    "slice_position",
    "update_cache",
    "conv_codes_transposed",
}
# Types of blocks differ in how a block is read, routes in where: each type with the usual routes, one with all.
USUAL_ROUTES = {case.name for case in cases_of("blocks")} - {"linear_q4_k"}
INT32 = np.iinfo(np.int32)
FLOATS = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-42, 0.0)


class HiddenIndices(Built):
    """A case whose integers are computed on the GPU, out of inputs of inverted bits."""

    def __init__(self, case: Case) -> None:
        self.hidden: set[int] = set()  # numbers of inputs
        super().__init__(case, np.random.default_rng(7))

    def _argument(self, arg: Any) -> Any:
        value = super()._argument(arg)
        if not isinstance(arg, In) or arg.dtype != "int32":
            return value
        self.hidden.add(len(self.inputs) - 1)
        return self.builder.call("aten.bitwise_not.default", value, dtype="int32")

    def given(self, live: dict[str, int], hostile: bool) -> list[np.ndarray]:
        """Inputs at a level: usual ones, or such as no program should have."""
        arrays = self.arrays(live)
        for n, array in enumerate(arrays):
            if n in self.hidden:
                arrays[n] = ~(self._hostile(array) if hostile else array)
            elif hostile and array.dtype.kind == "f":
                odd = self.rng.choice(FLOATS, array.shape).astype(array.dtype)
                arrays[n] = np.where(self.rng.random(array.shape) < 0.5, odd, array)
        return arrays

    def _hostile(self, array: np.ndarray) -> np.ndarray:
        """Far and just outside; NaN and infinity as their bits are; some as they were."""
        size = int(array.max(initial=0)) + 1
        bits = np.array([np.nan, np.inf, -1.0], np.float32).view(np.int32).tolist()
        values = np.array([INT32.min, INT32.max, -1, size, size + 1, -size - 1, 1 << 24, *bits], np.int32)
        return np.where(self.rng.random(array.shape) < 0.8, self.rng.choice(values, array.shape), array)


def each(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=case.name, marks=[] if case.name in QUICK else [pytest.mark.slow]) for case in cases]


@pytest.fixture(scope="module")
def guarded(device: Device) -> GuardedDevice:
    return GuardedDevice(device.adapter)


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with bounded_sessions(monkeypatch):
        yield


def follow(case: Case, device: GuardedDevice, routes: dict[str, str]) -> None:
    built = HiddenIndices(case)
    with GpuSession(built.graph, device, choices=routes) as session:
        guards = Guards(session)
        for live in (LEVELS[0], LEVELS[2], LEVELS[8]):
            guards.run(built.given(live, hostile=False))
            guards.run(built.given(live, hostile=True))


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("case", each(CASES))
def test_no_access_is_out_of_bounds(case: Case, guarded: GuardedDevice) -> None:
    tried = trials(guarded, [case])
    for trial in tried[:1] if case.name in USUAL_ROUTES else tried:
        follow(case, guarded, dict(trial.choices))


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
def test_no_access_of_kernels_for_four_lanes_is_out_of_bounds(guarded: GuardedDevice) -> None:
    case = next(case for case in CASES if case.name == "linear_q4_k")
    follow(case, of_four_lanes(guarded), {GEMV.name: "quads", GEMM.name: "quads"})


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("name", "text", "instead"),
    [
        ("embedding", "clamp(indices[i / params.width], 0, i32(params.rows) - 1)", "indices[i / params.width]"),
        ("gather", "clamp(select(index, index + size, index < 0), 0, size - 1)", "index"),
        ("rms_norm", "let start = row *", "let start = (row + 1u) *"),
        ("update_cache", "params.tokens + u32(", "params.tokens + 60u + u32("),
        ("relu", "if (i * 4u >= params.numel)", "if (i * 4u >= params.numel + 64u)"),
    ],
)
def test_an_access_out_of_bounds_is_found(
    name: str, text: str, instead: str, guarded: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = []

    def fault(source: str) -> str:
        planted.append(text in source)
        return source.replace(text, instead)

    change_kernels(monkeypatch, fault)
    forget_kernels()
    with pytest.raises(AssertionError, match="outside its live part"):
        follow(next(case for case in CASES if case.name == name), guarded, {})
    forget_kernels()
    assert any(planted), "the kernel's text has changed: plant the fault anew"


def test_indices_of_the_caller_are_checked_before_anything_runs() -> None:
    """Of every case that has some: just and far outside, each is refused, and the state stays."""
    checked = 0
    for case in CASES:
        built = Built(case, np.random.default_rng(7))
        session = CpuSession(built.graph)
        inputs = built.arrays(LEVELS[2])
        plan = session.level(inputs)[1]
        wrong = [
            (bound.position, value)
            for bound in plan.index_bounds
            for value in (bound.low - 1, bound.high + 1, INT32.min, INT32.max)
            if not bound.low <= value <= bound.high and INT32.min <= value <= INT32.max
        ]
        if plan.bounds:
            wrong += [(len(inputs) - 1 - case_length(built), value) for value in (-1, CONTEXT, INT32.min, INT32.max)]
        for position, value in wrong:
            given = [array.copy() for array in inputs]
            given[position].reshape(-1)[-1:] = value
            if given[position].size:
                refuse(session, given)
                checked += 1
    assert checked > 60


def case_length(built: Built) -> int:
    """How many inputs come behind the position."""
    return len(built.inputs) - 1 - [spec.dims for spec in built.inputs].index(("P",))


def refuse(session: CpuSession, given: list[np.ndarray]) -> None:
    before = [array.tobytes() for array in session.read_state()]
    with pytest.raises(InputError):
        session.run(given)
    assert [array.tobytes() for array in session.read_state()] == before


def test_one_index_is_checked_as_many_are() -> None:
    case = next(case for case in CASES if case.name == "embedding")
    built = Built(case, np.random.default_rng(7))
    session = CpuSession(built.graph)
    (ids,) = built.arrays({"S": 1})
    inputs, plan, _ = session.level([ids])
    assert plan.index_bounds and ids.size == 1 and InputElements(inputs, session.specs) == {}
    for bad in (-1, 30):
        with pytest.raises(InputError, match=f"has token id {bad}; it must be in 0..29"):
            session.run([np.full_like(ids, bad)])
