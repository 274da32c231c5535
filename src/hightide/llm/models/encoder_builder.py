"""What encoders have beside the pieces that all models share: whole texts in a step, and no KV cache.

The inputs are tokens [1, T], the rows of all texts end to end; the position of each row in its text [T]; attention's
work list `tiles` [N, 4] (see `hightide.ops.spans`); the rows that are wanted [W]; and, where the model tells two texts
of a pair apart, of which text each row is [T]. The output is the vectors of the wanted rows [1, W, width].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hightide.errors import UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder, Rope
from hightide.ops.builder import GraphBuilder
from hightide.ops.pages.work_lists import TILE

ENCODER_INPUTS = ("tokens", "positions", "tiles", "wanted", "types")
TYPES = "token_types.weight"


class EncoderBuilder(ModelBuilder):
    """Builds one encoder's graph."""

    def __init__(self, file: GgufFile, context: int, rows: int, sequences: int) -> None:
        """Of `sequences` texts of up to `context` tokens, with `rows` in all."""
        self.sequences = sequences
        super().__init__(file, context, rows, headless=True)

    def take_inputs(self, b: GraphBuilder) -> None:
        rows = self.max_tokens
        self.positions = b.input((rows,), "int32")
        self.tiles = b.input((rows // TILE + self.sequences, 4), "int32")
        self.wanted = b.input((rows,), "int32")
        several = self.has(TYPES) and self.file.tensors[TYPES].dims[:1] > (1,)
        self.types = b.input((rows,), "int32") if several else None
        self.length = b.call("sym_size.int", self.tokens, 1)

    def embed_typed(self) -> TensorValue:
        """Tokens, with their types and positions where the model has vectors of these."""
        call, x = self.graph_builder.call, self.embed()
        if self.types is not None:
            x = self.add(x, call("aten.embedding.default", self.weight(TYPES), self.types))
        elif self.has(TYPES):
            x = self.add(x, self.graph_builder.constant(self.array(TYPES)))
        if self.has("position_embd.weight"):
            x = self.add(x, call("aten.embedding.default", self.weight("position_embd.weight"), self.positions))
        return x

    def gated(self, gate: TensorValue, up: TensorValue, activation: str = "silu") -> TensorValue:
        """Also for the exact gelu."""
        if activation == "gelu":
            return self.multiply(self.activate(gate, activation), up)
        return super().gated(gate, up, activation)

    def at_positions(self, table: np.ndarray) -> TensorValue:
        return self._rows(self.graph_builder.constant(table))

    def _rows(self, table: TensorValue) -> TensorValue:
        return self.graph_builder.call("aten.index_select.default", table, 0, self.positions)

    def rope(self, *, halves: bool, **given: Any) -> Rope:
        """Rows of the tables, those of the positions."""
        rope = super().rope(halves=halves, **given)
        return Rope(self._rows(rope.cos), self._rows(rope.sin), True) if halves else rope

    def rotate(self, q: TensorValue, k: TensorValue, rope: Rope) -> tuple[TensorValue, TensorValue]:
        q, k = self.graph_builder.call("et_vk.apply_rotary_emb_hf.default", q, k, rope.cos, rope.sin, 0)
        return q, k

    def attend(
        self,
        q: TensorValue,
        k: TensorValue,
        v: TensorValue,
        *,
        scale: float | None = None,
        window: int = 0,
        softcap: float = 0.0,
        sinks: TensorValue | None = None,
    ) -> TensorValue:
        """Attention over the row's own text, or the keys less than `window` away -> [1, T, heads * depth]"""
        if softcap or sinks is not None:
            raise UnsupportedError(f"{self.file.path} squeezes the scores of attention or has sinks; encoders cannot")
        scale = 1 / math.sqrt(q.dims[3]) if scale is None else scale
        window = 0 if window >= self.context else window
        out = self.graph_builder.call("hightide.span_attention.default", q, k, v, self.tiles, scale, window)
        return self.joined(out)

    def finish(self, logits: TensorValue) -> Graph:
        self.check_all_read()
        b = self.graph_builder
        return b.graph(b.call("aten.index_select.default", logits, 1, self.wanted))
