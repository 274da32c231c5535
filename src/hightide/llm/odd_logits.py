"""Logits that are not numbers: a model whose arithmetic broke down, and the op where it did."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from hightide.errors import HightideError
from hightide.graph.graph import OpCall
from hightide.llm.engine import Engine


def odd_logits(engine: Engine, tokens: Sequence[int]) -> HightideError:
    """The error for logits that these tokens led to; the engine forgets them, since its KV cache may be no better."""
    engine.abandon()
    engine.tokens = []
    call = None
    with suppress(HightideError):  # the sentence is worth more than why there is no name in it
        call = _first_odd(engine, tokens)
    first = f": {call} is the first to give NaN or infinity" if call else ""
    where = "`hightide verify` tells whether the adapter or the model is at fault"
    return HightideError(f"the model's logits are not numbers{first}; {where}")


def _first_odd(engine: Engine, tokens: Sequence[int]) -> OpCall | None:
    """Reads the tokens again, from the first on: what breaks down early may show late, through the KV cache."""
    chunk = engine.decoder.max_tokens
    for first in range(0, len(tokens), chunk):
        part = list(tokens[first : first + chunk])
        engine.launch(part, first)
        if engine.collect().ids[-1] < 0:
            return engine.decoder.first_odd(part, first)
    return None
