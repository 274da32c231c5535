"""Parts on a GPU, fused and not, give what the references give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from schedules import PROGRAMS

from hightide.gpu.device import Device
from hightide.tools.opened_file import open_file

MODELS = Path(__file__).parents[1] / "models"
FILES = [PROGRAMS / "llama_gqa.pte", PROGRAMS / "symints_between.pte", MODELS / "llama.gguf"]


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "as in the file"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_parts_agree_with_the_references(path: Path, fuse: bool, device: Device) -> None:
    for part in open_file(path).parts:
        gpu, cpu = part.session(fuse=fuse), part.session("cpu")
        if not fuse:
            assert [call.name for call in gpu.graph.calls] == [call.name for call in part.graph.calls]
        given = part.inputs_at({s: min(most, 3) for s, most in part.symbols.items()})
        for got, want in zip(gpu.run(given), cpu.run(given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
