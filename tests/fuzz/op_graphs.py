"""The graphs of the op cases as JSON, to be changed where files are hard to change: every argument of every op."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np

from hightide.errors import ProgramError
from hightide.graph.blob import Blob
from hightide.graph.graph import FileCall, Graph, GraphFile
from hightide.graph.values import ITEM_SIZE, ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.case import all_cases
from hightide.runtime.case_graph import CaseGraph

MOST_BYTES = 1 << 20  # of a constant
INTEGERS = (0, 1, -1, 2, 3, 5, 7, 16, 33, 64, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
LITERALS = (*INTEGERS, None, True, False, 0.0, -1.0, 1e30, float("nan"), float("inf"), "", "silu", "none")
DTYPES = ("float32", "float16", "int32", "int64", "bool", "uint8", "int8", "float64")


def op_graphs() -> Iterator[tuple[str, bytes]]:
    for case in all_cases():
        yield f"{case.name}.graph", encoded(CaseGraph(case, np.random.default_rng(0)).graph)


def encoded(graph: Graph) -> bytes:
    values: list[Any] = [_encoded(value) for value in graph.values]
    calls = []
    for call in graph.calls:
        names = [argument.name for argument in arguments_of(REGISTRY[call.name])]
        last = max((names.index(name) for name in call.args), default=-1)
        ids = []
        for name in names[: last + 1]:
            if name not in call.args:
                values.append(["literal", None])
            ids.append(call.args.get(name, len(values) - 1))
        calls.append([call.name, [*ids, call.out]])
    return json.dumps({"values": values, "calls": calls, "inputs": graph.inputs, "outputs": graph.outputs}).encode()


def decoded(data: bytes) -> GraphFile:
    """ProgramError for what is no graph at all."""
    read = json.loads(data)
    values = tuple(_decoded(id, *value) for id, value in enumerate(read["values"]))
    ids = [*read["inputs"], *read["outputs"], *(id for _, args in read["calls"] for id in args)]
    ids += [id for value in values if isinstance(value, ListValue) for id in value.items]
    if not all(0 <= id < len(values) for id in ids):
        raise ProgramError("a value that does not exist")
    if any(isinstance(values[id], ListValue) for v in values if isinstance(v, ListValue) for id in v.items):
        raise ProgramError("a list of lists")
    calls = tuple(FileCall(n, name, tuple(args)) for n, (name, args) in enumerate(read["calls"]))
    return GraphFile(values, calls, tuple(read["inputs"]), tuple(read["outputs"]))


def changed(data: bytes, chance: Random) -> bytes:
    """One value is another one, or one argument is another value."""
    graph = json.loads(data)
    values = graph["values"]
    if not chance.randrange(5):
        args = chance.choice(graph["calls"])[1]
        args[chance.randrange(len(args))] = chance.randrange(len(values))
        return json.dumps(graph).encode()
    value = chance.choice(values)
    match value[0]:
        case "literal" if isinstance(value[1], list) and chance.randrange(4):
            _change_items(value[1], chance, (*INTEGERS, 1.5, None))
        case "literal":
            value[1] = chance.choice((*LITERALS, [], [0], [1, 1], [-1], [2**62, 4], [True], [0.5]))
        case "tensor" if chance.randrange(3):
            _change_items(value[1], chance, (0, 1, 2, 3, 5, 8, 31, 64, 1000, 2**31))
        case "tensor":
            value[2] = chance.choice(DTYPES)
        case "list":
            _change_items(value[1], chance, range(len(values)))
        case _:
            value[1] = chance.choice(INTEGERS)
    return json.dumps(graph).encode()


def _change_items(items: list[Any], chance: Random, options: Any) -> None:
    match chance.randrange(4):
        case 0 if items:
            del items[chance.randrange(len(items))]
        case 1:
            items.insert(chance.randrange(len(items) + 1), chance.choice(options))
        case _ if items:
            items[chance.randrange(len(items))] = chance.choice(options)


def _encoded(value: Value) -> list[Any]:
    match value:
        case TensorValue():
            return ["tensor", list(value.dims), value.dtype, value.constant is not None]
        case SymIntValue():
            return ["symint", value.initial]
        case LiteralValue():
            return ["literal", value.value]
        case ListValue():
            return ["list", list(value.items)]


def _decoded(id: int, kind: str, content: Any, dtype: str = "", constant: bool = False) -> Value:
    match kind:
        case "tensor":
            return TensorValue(id, tuple(content), dtype, dtype, _zeros(tuple(content), dtype) if constant else None)
        case "symint":
            return SymIntValue(id, content)
        case "literal":
            return LiteralValue(id, tuple(content) if isinstance(content, list) else content)
        case _:
            return ListValue(id, tuple(content))


def _zeros(dims: tuple[int, ...], dtype: str) -> Blob:
    count = math.prod(dims)
    if dtype in BLOCK_TYPES:
        block = BLOCK_TYPES[dtype]
        if not dims or dims[-1] % block.elements:
            raise ProgramError("rows that are not whole blocks")
        length = count // block.elements * block.bytes
    else:
        length = count * ITEM_SIZE[dtype]
    if length > MOST_BYTES:
        raise ProgramError("a constant that no small file holds")
    return Blob(bytes(length), 0, length)
