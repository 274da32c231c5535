"""`hightide export` of a Whisper file: a program that agrees with the torch modules of the file's weights.

Needs the extra `export` (torch and executorch); skipped without it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schedules import error_of_range
from whisper_files import TOKENS, whisper_bytes

from hightide import ProgramError, load
from hightide.formats.whisper_ggml import WhisperSizes
from hightide.speech.whisper_export import export_whisper

SIZES = WhisperSizes(1608 + len(TOKENS), 12, 24, 3, 1, 16, 24, 3, 1, 10)
HAS_EXPORTER = all(importlib.util.find_spec(name) is not None for name in ("torch", "executorch"))
pytestmark = pytest.mark.skipif(not HAS_EXPORTER, reason="no torch and executorch: pip install 'hightide[export]'")


@pytest.fixture
def modules(tmp_path: Path) -> dict[str, Any]:
    """A model of random weights, and `model.bin` with them."""
    import torch

    from hightide.speech.whisper_torch import AudioEncoder, TextDecoder

    torch.manual_seed(0)
    made = {"encoder": AudioEncoder(SIZES).eval(), "text_decoder": TextDecoder(SIZES).eval()}
    weights: dict[str, np.ndarray] = {}
    for prefix, module in (("encoder", made["encoder"]), ("decoder", made["text_decoder"])):
        for name, weight in module.named_parameters():
            if not weight.any():  # the positions
                torch.nn.init.normal_(weight, std=0.3)
            if weight.ndim > 2:  # as the file rounds them
                weight.data = weight.data.half().float()
            weights[f"{prefix}.{name}"] = weight.detach().numpy()
    (tmp_path / "model.bin").write_bytes(whisper_bytes(weights, sizes=SIZES))
    return made


def test_the_command_writes_what_the_file_holds(hightide: Any, modules: dict[str, Any], tmp_path: Path) -> None:
    import torch

    code, out, err = hightide("export", tmp_path / "model.bin", tmp_path / "out.pte", "--metadata", '{"about": 7}')
    assert code == 0 and out == f"{tmp_path / 'out.pte'}\n" and (tmp_path / "out.tokenizer.json").is_file()
    assert err.splitlines()[-1].endswith("its tokenizer in out.tokenizer.json") and "INFO" not in err
    rng = np.random.default_rng(0)
    sound = rng.standard_normal((1, SIZES.mels, 2 * SIZES.audio_context)).astype(np.float32)
    with load(tmp_path / "out.pte", device="cpu") as program, torch.no_grad():
        assert program.metadata["about"] == 7 and program.metadata["get_vocab_size"] == SIZES.vocabulary
        heard = modules["encoder"](torch.from_numpy(sound))
        (got,) = program.method("encoder")(sound)
        assert error_of_range(got, heard.numpy()) <= 1e-6
        for ids in (np.array([[6, 3, 1]]), np.array([[4]])):  # the second goes on behind the first
            places = np.arange(ids.size) + (3 if ids.size == 1 else 0)
            wanted = modules["text_decoder"](torch.from_numpy(ids), heard, torch.from_numpy(places)).numpy()
            (logits,) = program.method("text_decoder")(ids, heard.numpy(), places)
            assert error_of_range(logits, wanted) <= 1e-6


def test_an_error_of_the_exporter_is_one_line(
    modules: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("no partition today\nand more")

    monkeypatch.setattr("hightide.speech.whisper_export.lower_whisper", fail)
    with pytest.raises(ProgramError, match=r"^ExecuTorch's exporter failed: no partition today$"):
        export_whisper(tmp_path / "model.bin", tmp_path / "out.pte")
    assert not (tmp_path / "out.pte").exists()
