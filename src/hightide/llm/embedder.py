"""Texts to vectors, and documents in the order in which they answer a query.

with hightide.Embedder("model.gguf") as embedder:
    vectors = embedder.embed(["a cat", "a dog"])
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from hightide.llm.engine import Engine
from hightide.runtime.closing import Closing


class Embedder(Closing):
    """An encoder (BERT and its kin), or a decoder whose rows are pooled. Texts of a call share steps.

    `close()`, or leaving a `with` block, frees what it holds on its device. Every method may be called from any thread.
    """

    def __init__(
        self, model: str | os.PathLike[str], *, pooling: str = "auto", max_texts: int = 32, **options: Any
    ) -> None:
        """Opens a GGUF file or a Hugging Face folder.

        `pooling` says how the rows of a text become its vector: "mean", "cls" (the first), "last", or "rank" (a
        cross-encoder's score). "auto" is as the file says; where it says nothing, the mean, or the last of a decoder.
        Steps have up to `max_texts` texts. Other options are those of `Engine`: `tokenizer`, `context`, `device`,
        `quantize` and so on. An encoder reads each text in one step, so its `chunk` is at least its context.
        """
        self.engine = Engine(model, pooling=pooling, max_sequences=max_texts, **options)
        self.path, self.tokenizer, self.context = self.engine.path, self.engine.tokenizer, self.engine.context
        self.pooling = self.engine.pooling

    def __repr__(self) -> str:
        return repr(self.engine).replace("<Engine", "<Embedder", 1)

    def embed(
        self, texts: Sequence[str | Sequence[int]], *, truncate: bool = False, normalize: bool = True
    ) -> np.ndarray:
        """The vectors [texts, width] in float32, each of length 1 unless `normalize` is False.

        A text of more tokens than the context holds is refused, or cut with `truncate`.
        """
        return self.engine.embed(texts, truncate=truncate, normalize=normalize)

    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = False) -> np.ndarray:
        """How well each document goes with the query: a reranker's scores, or else cosines. [documents]"""
        return self.engine.rank(query, documents, truncate=truncate)

    def close(self) -> None:
        self.engine.close()
