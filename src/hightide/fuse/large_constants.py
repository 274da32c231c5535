"""Constants that are larger than an adapter binds: the rows of tables and weights in several tensors.

Linears and embeddings take parts; a 4-bit linear becomes several, whose columns are put together. Constants of other
ops stay whole, and a session refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hightide.fuse.joining import ADAPTED, ANY, Q4
from hightide.fuse.rewriter import Rewriter
from hightide.graph.blob import AnyBlob, Joined
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import ITEM_SIZE, Dims, TensorValue
from hightide.ops.linear.routes import BLOCK
from hightide.ops.storage import GPU_TYPE, gpu_bytes

ROWS = 16  # parts have a multiple of so many
EMBEDDINGS = (
    "et_vk.embedding_q4gsw.default",
    "quantized_decomposed.embedding_4bit.dtype",
    "quantized_decomposed.embedding_4bit.default",
    "quantized_decomposed.embedding_byte.dtype",
    "quantized_decomposed.embedding_byte.default",
)


def split_large(graph: Graph, most: int) -> Graph:
    """The graph with no constant of more than `most` bytes on the GPU, as far as ops take them in parts."""
    if not any(_is_large(value, most) for value in graph.values):
        return graph
    splitter = _Splitter(Rewriter(graph), most)
    for names, split in splitter.ways.items():
        for call in splitter.r.calls(*names):
            split(call)
    return splitter.r.finish()


def _is_large(value: object, most: int) -> bool:
    if not isinstance(value, TensorValue) or value.constant is None or value.dtype not in GPU_TYPE:
        return False
    return gpu_bytes(value.dtype, value.dims) > most


class _Splitter:
    """Ops that share a weight share its parts."""

    def __init__(self, r: Rewriter, most: int) -> None:
        self.r, self.most = r, most
        self._made: dict[tuple[int, str, int], tuple[int, ...]] = {}
        self.ways: dict[tuple[str, ...], Callable[[OpCall], None]] = {
            ("aten.embedding.default",): self._embedding,
            (*ANY, ADAPTED): self._linear,
            EMBEDDINGS: self._code_rows,
            Q4: self._four_bit_linear,
        }

    def _embedding(self, call: OpCall) -> None:
        """As blocks of floats, whose kernel takes parts."""
        weight = self._large(call, "weight")
        kinds = {"float32": "F32", "float16": "F16"}
        if weight is None or len(weight.dims) != 2 or weight.dims[1] % BLOCK or weight.stored_dtype not in kinds:
            return
        parts = self._parts(weight, self._step(weight), kinds[weight.stored_dtype])
        self._give(call, weight=parts)

    def _linear(self, call: OpCall) -> None:
        items = [self.r.tensor(id) for id in self.r.items(call.args["weight"])]
        if not any(_is_large(item, self.most) for item in items) or any(len(item.dims) != 2 for item in items):
            return
        if items[0].dims[1] % 4 or any(item.dtype not in ("float32", "float16") for item in items):
            return
        self._give(call, weight=[id for item in items for id in self._parts(item, self._step(item))])

    def _code_rows(self, call: OpCall) -> None:
        names = [name for name in ("weight", "scales", "zeros") if name in call.args]
        tables = {name: self.r.values[call.args[name]] for name in names}
        found = {name: table for name, table in tables.items() if isinstance(table, TensorValue)}
        if not any(_is_large(table, self.most) for table in found.values()):
            return
        if any(table.constant is None or not table.dims for table in found.values()):
            return
        step = min(self._step(table) for table in found.values())
        self._give(call, **{name: self._parts(table, step) for name, table in found.items()})

    def _four_bit_linear(self, call: OpCall) -> None:
        """Several linears, of some columns each; what comes behind the product comes behind them all."""
        r, args = self.r, call.args
        weight, scales = r.tensor(args["weight"]), r.tensor(args["scales"])
        if not (_is_large(weight, self.most) or _is_large(scales, self.most)) or r.option(call, "activation"):
            return
        if weight.constant is None or scales.constant is None or len(weight.dims) != 2 or len(scales.dims) != 2:
            return
        out = r.tensor(call.out)
        step = min(self._step(weight), max(self.most // max(4 * scales.dims[0], 1) // ROWS, 1) * ROWS)
        made, products = [], []
        for first, part in zip(range(0, weight.dims[0], step), self._parts(weight, step), strict=True):
            rows = r.tensor(part).dims[0]
            product = r.new_tensor((*out.dims[:-1], rows), out.dtype)
            columns = self._columns(scales, first, rows)
            given = {"weight": part, "scales": columns}
            given |= {name: args[name] for name in ("x", "group", "norm", "eps") if name in args}
            made.append(OpCall(0, call.name, given, product))
            products.append(product)
        after = [args[name] for name in ("bias", "residual") if name in args and r.option(call, name) is not None]
        after = [self._cut(r.tensor(id), out.dims[-1]) for id in after]
        wholes = [call.out if n == len(after) else r.new_tensor(out.dims, out.dtype) for n in range(len(after) + 1)]
        joined = {"tensors": r.new_list(products), "dim": r.new_literal(-1)}
        made.append(OpCall(0, "aten.cat.default", joined, wholes[0]))
        for n, other in enumerate(after):
            summed = {"a": wholes[n], "b": other}
            made.append(OpCall(0, "aten.add.Tensor", summed, wholes[n + 1]))
        r.replace([call], made)

    # ---- tensors

    def _large(self, call: OpCall, name: str) -> TensorValue | None:
        value = self.r.values[call.args[name]]
        return value if isinstance(value, TensorValue) and _is_large(value, self.most) else None

    def _step(self, table: TensorValue) -> int:
        """How many rows a part has."""
        row = gpu_bytes(table.dtype, (ROWS, *table.dims[1:]))
        return max(self.most // max(row, 1), 1) * ROWS

    def _parts(self, table: TensorValue, step: int, dtype: str = "") -> tuple[int, ...]:
        key = table.id, dtype, step
        if key not in self._made:
            rows = range(0, table.dims[0], step)
            self._made[key] = tuple(self._part(table, first, min(step, table.dims[0] - first), dtype) for first in rows)
        return self._made[key]

    def _part(self, table: TensorValue, first: int, rows: int, dtype: str) -> int:
        assert table.constant is not None
        row = math.prod(table.dims[1:]) * ITEM_SIZE[table.stored_dtype]
        data = Joined((table.constant,), 1, (rows * row,), first * row)
        return self._tensor(table, (rows, *table.dims[1:]), data, dtype)

    def _columns(self, scales: TensorValue, first: int, count: int) -> int:
        assert scales.constant is not None
        size = ITEM_SIZE[scales.stored_dtype]
        data = Joined((scales.constant,), scales.dims[0], (count * size,), first * size)
        return self._tensor(scales, (scales.dims[0], count), data, "")

    def _cut(self, bias: TensorValue, count: int) -> int:
        """A bias may be padded."""
        if bias.constant is None or bias.dims == (count,) or len(bias.dims) != 1:
            return bias.id
        size = ITEM_SIZE[bias.stored_dtype]
        return self._tensor(bias, (count,), Joined((bias.constant,), 1, (count * size,)), "")

    def _tensor(self, like: TensorValue, dims: Dims, data: AnyBlob, dtype: str) -> int:
        id = self.r.new_tensor(dims, dtype or like.dtype, data)
        if not dtype:
            self.r.values[id] = replace(self.r.tensor(id), stored=like.stored)
        return id

    def _give(self, call: OpCall, **parts: Sequence[int]) -> None:
        lists = {name: ids[0] if len(ids) == 1 else self.r.new_list(ids) for name, ids in parts.items()}
        self.r.replace([call], [replace(call, args={**call.args, **lists})])
