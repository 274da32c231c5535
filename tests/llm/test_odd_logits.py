"""Logits that are not numbers: an error that names the op, whoever chooses the token and wherever the model runs."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from hightide import LLM
from hightide.errors import HightideError, InputError
from hightide.gpu.device import adapters
from hightide.llm.perplexity import perplexity
from hightide.ops.sampling.sampling import sample

MODEL = Path(__file__).parents[1] / "models" / "llama.gguf"
PROMPT = [3, 17, 5, 40, 8, 21]
NAN, INF = np.nan, np.inf
PLACES = ["cpu", pytest.param(None, marks=[pytest.mark.gpu, pytest.mark.skipif(not adapters(), reason="no adapter")])]


def damaged(folder: Path, tensor: str, value: float, rows: slice = slice(None)) -> Path:
    """The model with other values in one tensor."""
    path = Path(shutil.copy(MODEL, folder / "damaged.gguf"))
    reader = gguf.GGUFReader(path, "r+")
    weights = next(t for t in reader.tensors if t.name == tensor)
    if weights.data.dtype == np.uint8:  # blocks begin with their scale, a half
        weights.data[rows, :2] = np.array([value], np.float16).view(np.uint8)
    else:
        weights.data[rows] = value
    reader.data.flush()
    return path


NORMS = r"\((\S*norm\S*|hightide.linear\S*)\)"  # on a GPU part of the linear behind it


@pytest.fixture(params=PLACES)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LLM]:
    with LLM(damaged(tmp_path, "blk.0.attn_norm.weight", NAN), device=request.param, chunk=4) as llm:
        yield llm


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.0, "seed": 1}, {"speculate": True}, {"logprobs": 2}, {"temperature": 1.0, "logprobs": 2}],
    ids=str,
)
def test_the_op_is_named(broken: LLM, options: dict[str, Any]) -> None:
    with pytest.raises(HightideError, match=rf"logits are not numbers: op \d+ {NORMS} is the first"):
        broken.generate(PROMPT, max_tokens=4, **options)
    assert broken.tokens == []


def test_a_text_cannot_be_scored(broken: LLM) -> None:
    with warnings.catch_warnings(), pytest.raises(HightideError, match=rf"op \d+ {NORMS} is the first"):
        warnings.simplefilter("error")
        perplexity(broken, PROMPT * 2)


@pytest.mark.parametrize("where", PLACES)
def test_one_bad_token_is_found_when_it_comes(where: str | None, tmp_path: Path) -> None:
    """In the middle of an answer, with the next step under way; afterwards the model is as good as before."""
    with LLM(MODEL, device=where) as good:
        answer = good.generate(PROMPT, max_tokens=8).tokens
    new = next(token for token in answer if token not in PROMPT)
    before = answer[: answer.index(new) + 1]
    with LLM(damaged(tmp_path, "token_embd.weight", NAN, slice(new, new + 1)), device=where) as llm:
        got = []
        with pytest.raises(HightideError, match=r"op \d+ \(\S*embedding\S*\) is the first"):
            for piece in llm.stream(PROMPT, max_tokens=8):
                got.append(piece.token)
        assert got == before
        assert llm.generate(PROMPT, max_tokens=len(before)).tokens == before


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("value", [INF, -INF])
def test_infinite_logits(where: str | None, value: float, tmp_path: Path) -> None:
    with (
        LLM(damaged(tmp_path, "output_norm.weight", value), device=where) as llm,
        pytest.raises(HightideError, match="logits are not numbers"),
    ):
        llm.generate(PROMPT, max_tokens=2)


def test_biases_that_leave_no_token() -> None:
    with LLM(MODEL, device="cpu") as llm:
        ruled_out = dict.fromkeys(range(llm.decoder.vocab_size), -INF)
        kept = {**ruled_out, 7: 0.0}
        assert llm.generate(PROMPT, max_tokens=2, logit_bias=kept, temperature=1.0).tokens == [7, 7]
        with pytest.raises(InputError, match="leave no token"):
            llm.generate(PROMPT, max_tokens=2, logit_bias=ruled_out)


@pytest.mark.parametrize("settings", [(0, 0, 1, 0, 0.5), (1, 0, 1, 0, 0.5), (1, 3, 0.9, 0.1, 0.5)])
def test_the_reference_gives_minus_one(settings: tuple[float, ...]) -> None:
    def chosen(*logits: float) -> int:
        return sample(np.array(logits), np.array(settings))

    with np.errstate(all="ignore"):
        assert chosen(1, NAN, 2) == chosen(INF, 0, 1) == chosen(-INF, -INF) == chosen(NAN) == -1
    assert chosen(-INF, 3, -INF) == 1
