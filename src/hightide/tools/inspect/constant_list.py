"""The constants of a graph: what they are called, how large they are, and which of them are state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hightide.graph.blob import Blob, Computed, Joined
from hightide.graph.graph import Graph, input_ids, output_ids
from hightide.graph.values import ListValue, TensorValue
from hightide.ops.views.views import PREPACK


@dataclass(frozen=True)
class Constant:
    """A constant of a graph or method. Exporters keep no names: then it is called after the op that reads it."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    bytes: int
    state: bool  # some op writes it


def printable(text: str) -> str:
    """Names from a file, fit for a terminal: control characters could do anything to it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def constants_of(graph: Graph, state: Iterable[int], names: Mapping[tuple[int, int], str]) -> list[Constant]:
    """The constants that some op reads, the largest first; `names` by where their bytes are."""
    written, found = set(state), {}
    for call in graph.calls:
        for argument, id in call.args.items():
            value = graph.values[id]
            for n, item in enumerate(value.items if isinstance(value, ListValue) else (id,)):
                tensor = graph.values[item]
                if isinstance(tensor, TensorValue) and tensor.constant is not None and item not in found:
                    name = _stored_name(tensor, names) or _use_name(graph, call.index, argument, n)
                    is_state = item in written
                    found[item] = Constant(name, tensor.dtype, tensor.dims, tensor.constant.length, is_state)
    return sorted(found.values(), key=lambda constant: -constant.bytes)


def _stored_name(tensor: TensorValue, names: Mapping[tuple[int, int], str]) -> str | None:
    """The name in the file of where the bytes are; those of a joined weight, each."""
    blobs = [tensor.constant]
    found: list[str] = []
    while blobs:
        blob = blobs.pop(0)
        if isinstance(blob, Blob):
            name = names.get((id(blob.source), blob.offset))
            if name is None:
                return None
            found.append(printable(name))
        elif isinstance(blob, Joined | Computed):
            blobs[:0] = blob.parts
        elif blob is not None:
            return None
    return " + ".join(dict.fromkeys(found))


def _use_name(graph: Graph, call_index: int, argument: str, item: int) -> str:
    """`weight of op 12 (et_vk.linear_q4gsw.default)`"""
    call = graph.calls[call_index]
    if call.name == PREPACK:  # what is packed is read by another op
        made = output_ids(graph, call)[0]
        for later in graph.calls[call_index + 1 :]:
            if made in input_ids(graph, later):
                for name, id in later.args.items():
                    value = graph.values[id]
                    if id == made or (isinstance(value, ListValue) and made in value.items):
                        return _use_name(graph, later.index, name, 0)
    return f"{argument}{f' {item}' if item else ''} of op {call_index} ({call.name})"
