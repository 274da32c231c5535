"""What a program needs that hightide does not have: found by name when it is loaded, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hightide.formats.instructions import KernelCall
from hightide.formats.program_file import ProgramFile
from hightide.graph.graph import GraphFile
from hightide.ops import REGISTRY
from hightide.ops.contract import has_kernel
from hightide.pte.delegates import DELEGATE_IDS
from hightide.pte.kernel_calls import find_op

Delegates = Mapping[tuple[str, int], GraphFile]  # by method and number, those that some instruction calls
Places = dict[str, dict[str, list[int]]]  # what is missing -> where -> the numbers there


def refusal(file: ProgramFile, delegates: Delegates, on_gpu: bool) -> str | None:
    """One sentence with every op and backend that keeps a program from running, or None if nothing does.

    `on_gpu`: every op in a delegate needs a GPU kernel. What an op itself refuses (a type, a rank) shows when a
    method is built.
    """
    ops = _collected(_unsupported_ops(file, delegates, on_gpu))
    backends = _collected(_unsupported_backends(file))
    counts = [_count(len(ops), "op"), _count(len(backends), "backend")]
    if not ops and not backends:
        return None
    listed = [f"{name} ({_places(where)})" for name, where in ops.items()]
    listed += [f"the backend {name} ({_places(where)})" for name, where in backends.items()]
    needs = " and ".join(filter(None, counts))
    advice = "; export it with VulkanPartitioner, or without a partitioner" if backends else ""
    return f"{file.path.name} needs {needs} that hightide does not support: {', '.join(listed)}{advice}"


def _unsupported_ops(file: ProgramFile, delegates: Delegates, on_gpu: bool) -> Iterator[tuple[str, str, int]]:
    """(op, where, number) of each call."""
    for method in file.methods.values():
        for n, instruction in enumerate(method.instructions):
            if isinstance(instruction, KernelCall) and find_op(instruction.op) is None:
                yield instruction.op, f"{method.name}, instruction", n
    for (name, number), graph in delegates.items():
        where = f"{name}, delegate {number}, op"
        for call in graph.calls:
            if call.name not in REGISTRY:
                yield call.name, where, call.index
            elif on_gpu and not has_kernel(REGISTRY[call.name]):
                yield call.name, f"no GPU kernel; {where}", call.index


def _unsupported_backends(file: ProgramFile) -> Iterator[tuple[str, str, int]]:
    for method in file.methods.values():
        for n, delegate in enumerate(method.delegates):
            if delegate.id not in DELEGATE_IDS:
                yield delegate.id, f"{method.name}, delegate", n


def _collected(found: Iterator[tuple[str, str, int]]) -> Places:
    places: Places = {}
    for name, where, number in found:
        places.setdefault(name, {}).setdefault(where, []).append(number)
    return places


def _places(found: Mapping[str, list[int]]) -> str:
    """`forward, instructions 0 and 5`"""
    texts = []
    for where, numbers in found.items():
        *first, last = map(str, numbers)
        texts.append(f"{where}s {', '.join(first)} and {last}" if first else f"{where} {last}")
    return "; ".join(texts)


def _count(number: int, noun: str) -> str:
    return "" if not number else f"one {noun}" if number == 1 else f"{number} {noun}s"
