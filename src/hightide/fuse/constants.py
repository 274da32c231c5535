"""Work on constants alone is done once, when a session is built, not at every call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hightide.errors import HightideError
from hightide.fuse.rewriter import Rewriter
from hightide.graph.blob import AnyBlob, Computed
from hightide.graph.graph import OpCall
from hightide.graph.values import ITEM_SIZE, Dims, ListValue, LiteralValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.arguments import converted
from hightide.ops.arrays import read_array
from hightide.ops.blocks.layout import BLOCK_TYPES, dequantize
from hightide.ops.contract import Context, Op, Tensor
from hightide.ops.storage import gpu_bytes

# Ops that are cheap on the host, and that no value of an index can make fail.
FAMILIES = ("elementwise", "movement", "fill", "norm", "reduce", "softmax")
SMALL = 64 << 10  # bytes: a result of this size may be larger than what it is made from


def constants(r: Rewriter) -> None:
    """The result of a call on constants becomes a constant, unless that takes more memory.

    References compute it in float32, as a GPU does: sums, products, casts and moves have the same bits there. Functions
    such as exp, and sums of many, may differ from the adapter's by what the op's tolerance allows.
    """
    for call in r.every_call():
        if REGISTRY[call.name].family in FAMILIES:
            folded = _folded(r, call)
            if folded is not None:
                r.fold(call, folded)


def _folded(r: Rewriter, call: OpCall) -> dict[int, tuple[AnyBlob, str]] | None:
    """The outputs of a call as blobs, with the types that they are stored as; None if it is left as it is."""
    outs, ids = r.items(call.out), [item for id in call.args.values() for item in r.items(id)]
    if any(map(r.is_written, (*outs, *ids))) or any(map(r.is_output, outs)):
        return None
    sources = [_source(r, id) for id in ids if not isinstance(r.values[id], LiteralValue)]
    found = [source for source in sources if source is not None]
    if len(found) < len(sources) or not _fits(r, outs, found) or not _declared(r, call, outs):
        return None
    compute = partial(_computed, REGISTRY[call.name], {name: _argument(r, id) for name, id in call.args.items()})
    parts = tuple(source.constant for source in found if source.constant is not None)
    folded: dict[int, tuple[AnyBlob, str]] = {}
    for n, id in enumerate(outs):
        value = r.tensor(id)
        stored = "float32" if value.dtype == "float16" else value.dtype  # where there are no halves, nothing is lost
        length = ITEM_SIZE[stored] * int(np.prod(value.dims))
        folded[id] = Computed(length, parts, partial(_bytes, compute, n, stored)), stored
    return folded


def _source(r: Rewriter, id: int) -> TensorValue | None:
    """The constant that a value is, or is a view of."""
    value = r.values[r.behind_views(id)[0]]
    return value if isinstance(value, TensorValue) and value.constant is not None else None


def _fits(r: Rewriter, outs: Sequence[int], sources: Sequence[TensorValue]) -> bool:
    values = [r.values[id] for id in outs]
    made = [value for value in values if isinstance(value, TensorValue)]
    if len(made) < len(values) or any(value.dtype in ("bfloat16", "float64") for value in made):
        return False
    if any(value.stored for value in sources):  # halves that are held as such are rounded in between
        return False
    replaced = {value.id: gpu_bytes(value.dtype, value.dims) for value in sources}
    return sum(gpu_bytes(value.dtype, value.dims) for value in made) <= max(SMALL, sum(replaced.values()))


def _declared(r: Rewriter, call: OpCall, outs: Sequence[int]) -> bool:
    """Whether the op gives what the graph declares; if not, whoever plans the graph says what is wrong."""
    ctx = Context(env={}, input_positions={}, scratch_limit=1 << 27)
    op = REGISTRY[call.name]
    try:
        dims = op.bound(converted(op, {name: _live(r, id) for name, id in call.args.items()})).outputs(ctx)
    except HightideError:
        return False
    return dims == [r.tensor(id).dims for id in outs]


def _live(r: Rewriter, id: int) -> Any:
    value = r.values[id]
    if isinstance(value, TensorValue):
        return Tensor(value, value.dims)
    return tuple(_live(r, item) for item in value.items) if isinstance(value, ListValue) else r.literal(id)


def _argument(r: Rewriter, id: int) -> Any:
    """An argument to compute with: a literal, a constant with the dims that it is viewed at, or a list of these."""
    value = r.values[id]
    if isinstance(value, ListValue):
        return tuple(_argument(r, item) for item in value.items)
    source = None if isinstance(value, LiteralValue) else _source(r, id)
    return r.literal(id) if source is None else _Constant(source, r.tensor(id).dims)


class _Constant:
    """A constant, read when it is needed."""

    def __init__(self, value: TensorValue, dims: Dims) -> None:
        self.value, self.dims = value, dims

    def array(self) -> np.ndarray:
        value = self.value
        assert value.constant is not None
        if value.dtype in BLOCK_TYPES:
            array = dequantize(value.constant, value.dtype, value.dims)
        else:
            array = read_array(value.constant.view(), value.stored_dtype, value.dims)
        held = {"f": "float32", "i": "int32"}.get(array.dtype.kind if array.itemsize > 1 else "", array.dtype)
        return array.astype(held).reshape(self.dims)


def _computed(op: type[Op], arguments: dict[str, Any]) -> tuple[np.ndarray, ...]:
    def given(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return tuple(given(item) for item in argument)
        return argument.array() if isinstance(argument, _Constant) else argument

    with np.errstate(all="ignore"):  # infinities and NaNs go on silently, as on the GPU
        result = op.evaluate(converted(op, {name: given(argument) for name, argument in arguments.items()}))
    return tuple(map(np.asarray, result)) if isinstance(result, tuple | list) else (np.asarray(result),)


def _bytes(compute: partial[tuple[np.ndarray, ...]], n: int, dtype: str) -> bytes:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(compute()[n].astype(dtype)).tobytes()
