"""hightide itself as the bench drives it: the engine's own way of reading a prompt and of decoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.llm.decoder import RaggedDecoder
from hightide.llm.llm import LLM
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.bench.samples import Measured, timed

NAME = "hightide"


class BenchEngine:
    """A model on the adapter. Prompts go in chunks, and a decode step is launched before the last is collected."""

    name = NAME
    on_cpu = False

    def __init__(
        self, model: Path, *, context: int | None = None, chunk: int | None = None, device: str | None = None
    ) -> None:
        self.llm = LLM(model, context=context, chunk=chunk, device=device)
        if not isinstance(self.llm.decoder, RaggedDecoder):
            raise UnsupportedError(f"{model.name} is not one graph with a KV cache: the bench measures such models")
        self.decoder: RaggedDecoder = self.llm.decoder
        if not isinstance(self.decoder.session, GpuSession):
            raise InputError("the bench measures a WebGPU adapter, and there is none here, or 'cpu' was asked for")
        self.session: GpuSession = self.decoder.session
        self.straight = self.llm.straight()
        self._position = 0
        self._last = 1

    @property
    def context(self) -> int:
        return self.decoder.context

    def prefill(self, tokens: Sequence[int]) -> Measured:
        """Read a prompt from an empty cache, up to the id that follows it."""
        sample, chosen = timed(lambda: self._read(tokens))
        self._position, self._last = len(tokens), chosen
        return Measured((sample,), (chosen,))

    def decode(self, count: int) -> Measured:
        """`count` tokens after the last prefill, or after `start_at`: one sample, of a token on average."""
        ids: list[int] = []

        def steps() -> None:
            under_way = [self.straight.launch([self._last], self._position)]
            for n in range(1, count + 1):
                if n < count:
                    under_way.append(self.straight.launch(None, self._position + n))
                ids.append(int(self.straight.collect(under_way.pop(0)).ids[-1]))

        sample, _ = timed(steps)
        self._position, self._last = self._position + count, ids[-1]
        return Measured((sample.shared(count),), tuple(ids))

    def start_at(self, position: int) -> None:
        """Decode next as if so many tokens had been read: `fill` gives the cache something to look at."""
        self._position, self._last = position, 1

    def fill(self) -> None:
        """Random keys and values over the whole context, in the place of a prompt that would take long to read."""
        rng = np.random.default_rng(0)
        state = self.session.read_state()
        self.session.write_state([rng.standard_normal(array.shape, np.float32) for array in state])

    def _read(self, tokens: Sequence[int]) -> int:
        chunk = self.decoder.max_rows
        for first in range(0, len(tokens), chunk):
            part = tokens[first : first + chunk]
            last = first + len(part) == len(tokens)
            step = self.straight.collect(self.straight.launch(part, first, keep=1 if last else 0))
        return int(step.ids[-1])


def prompt(length: int, vocab: int) -> list[int]:
    """Token ids that look like nothing in particular; the first is the usual BOS."""
    low = min(300, vocab // 2)
    return [1, *(low + n * 37 % (vocab - low) for n in range(1, length))][:length]


def short_name(file: str) -> str:
    return "random Llama" if file.startswith("random-llama") else file.split(".")[0]
