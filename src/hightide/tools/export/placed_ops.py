"""Where the ops of an exported method run: in a delegate, in a graph that hightide joins, or on the host, and why."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.formats.instructions import DelegateCall, KernelCall
from hightide.pte.kernel_calls import find_name
from hightide.pte.program import Program
from hightide.pte.whole_method import host_reasons

UPLOAD = "et_vk.prepack.default"  # a constant that is brought to the GPU once


@dataclass(frozen=True)
class PlacedOp:
    """The calls of one op, by where they run."""

    name: str
    delegated: int  # in a delegate of the file
    joined: int  # outside of them, in a graph that hightide made
    host: int
    why: str  # some are on the host


def placed_ops(parts: Program, whole: Program, method: str) -> tuple[PlacedOp, ...]:
    """`parts` is the program as the file has it, `whole` the same with its methods joined. In the order of the file."""
    file = parts.file.methods[method]
    numbers = {call.delegate for call in file.instructions if isinstance(call, DelegateCall)}
    graphs = {number: parts.delegate_graph(method, number) for number in numbers}
    left = [call for call in whole.file.methods[method].instructions if isinstance(call, KernelCall)]
    reasons = host_reasons(file, graphs) if left else {}
    found: dict[str, list[int]] = {}
    for instruction in file.instructions:
        match instruction:
            case DelegateCall(delegate=number):
                for call in graphs[number].calls:
                    if call.name != UPLOAD:
                        found.setdefault(call.name, [0, 0, 0])[0] += 1
            case KernelCall():
                found.setdefault(_name(instruction), [0, 0, 0])[2 if instruction in left else 1] += 1
    why: dict[str, dict[str, None]] = {}
    for kernel in left:
        why.setdefault(_name(kernel), {})[reasons.get(kernel, "")] = None
    return tuple(
        PlacedOp(name, delegated, joined, host, "; ".join(filter(None, why.get(name, {}))))
        for name, (delegated, joined, host) in found.items()
    )


def _name(call: KernelCall) -> str:
    return find_name(call.op) or call.op
