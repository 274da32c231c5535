"""Fused graphs on the GPU: few dispatches, and the numbers of the graph as it was."""

from __future__ import annotations

import numpy as np
import pytest
from llamas import CONTEXT, INPUTS, call, llama_session, small_llama
from schedules import PROGRAMS, error_of_range, steps

from hightide.fuse import PASSES, fuse
from hightide.gpu.device import Device
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession

STEPS = [(24, 0), (1, 24), (1, 25), (7, 26), (2, 33), (1, 35), (17, 0), (1, 17), (1, CONTEXT - 1)]


def test_fused_and_plain_agree_at_every_step(device: Device) -> None:
    graph = small_llama()
    plain, fused = llama_session(device, graph), llama_session(device, fuse(graph))
    exact = CpuSession(graph, **INPUTS, dtype="float64")
    for tokens, position in STEPS:
        given = call(tokens, position)
        want = exact.run(given)
        for session in (plain, fused):
            fused.poison()
            for got, expected in zip(session.run(given), want, strict=True):
                assert error_of_range(got, expected) <= 2e-6


@pytest.mark.parametrize("layers", [2, 5])
def test_a_decode_step_takes_at_most_eight_dispatches_a_layer(device: Device, layers: int) -> None:
    session = llama_session(device, fuse(small_llama(layers=layers)))
    _, plan, _ = session.level(call(1, 40))
    assert len(plan.steps) <= 8 * layers + 6


def test_a_refused_call_of_a_fused_graph_names_what_is_wrong(device: Device) -> None:
    session = llama_session(device, fuse(small_llama()))
    before = session.run(call(3, 0))
    with pytest.raises(Exception, match=f"position {CONTEXT} plus 1 token is outside the context of {CONTEXT}"):
        session.run(call(1, CONTEXT))
    assert all(np.array_equal(a, b) for a, b in zip(session.run(call(3, 0)), before, strict=True))


def test_folded_constants_change_no_bit(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The norms of this program have weights 1 + w, which the graph adds."""
    calls = [(method, inputs) for method, inputs, _ in steps("gemma_norms")]

    def outputs(passes: str) -> list[np.ndarray]:
        monkeypatch.setenv("HIGHTIDE_PASSES", passes)
        with load(PROGRAMS / "gemma_norms.pte") as program:
            return [array for method, inputs in calls for array in program.method(method)(*inputs)]

    folded, plain = outputs(",".join(PASSES)), outputs(",".join(name for name in PASSES if name != "constants"))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(folded, plain, strict=True))
