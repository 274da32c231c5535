"""What `hightide inspect` says of memory and dispatches is what a session then takes and does."""

from __future__ import annotations

from pathlib import Path

import pytest
from schedules import PROGRAMS

from hightide.gpu.device import Device
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.inspect.planning import PlannedPart, target_of
from hightide.tools.opened_file import open_file

MODELS = Path(__file__).parents[1] / "models"
FILES = [PROGRAMS / f"{name}.pte" for name in ("llama_gqa", "two_dims", "llama_fp16")] + [MODELS / "qwen3.gguf"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_planned_is_built(path: Path, device: Device) -> None:
    (part,) = open_file(path).parts
    planned = PlannedPart(part, target_of(device))
    session = part.session()
    assert isinstance(session, GpuSession)
    taken, memory = session.device_bytes(), planned.memory
    assert (memory.weights, memory.state, memory.inputs) == (taken["weights"], taken["state"], taken["inputs"])
    assert memory.activations + memory.scratch == taken["activations"]
    assert memory.buffers == len(session.memory.plan.shared_sizes)
    level = {s: min(most, 3) for s, most in part.symbols.items()}
    _, plan, _ = session.level(part.inputs_at(level))
    routes = [row.route for row in planned.explain_at(level).rows if row.grid != (0, 0)]
    assert routes == [step.dispatch.kernel.name for step in plan.steps]
