"""The delegates that hightide runs: by which ids, and how each becomes a graph of hightide's ops."""

from __future__ import annotations

from collections.abc import Sequence

from hightide.errors import UnsupportedError
from hightide.formats import vkgraph, xnngraph
from hightide.formats.instructions import DelegateCall
from hightide.formats.program_file import MethodFile, ProgramFile
from hightide.graph.graph import GraphFile
from hightide.pte.xnnpack import translated

DELEGATE_IDS = (*vkgraph.DELEGATE_IDS, *xnngraph.DELEGATE_IDS)


def read_delegate(file: ProgramFile, method: MethodFile, number: int) -> GraphFile:
    """The graph of a delegate that some instruction of the method calls."""
    delegate = method.delegates[number]
    if delegate.id in vkgraph.DELEGATE_IDS:
        return vkgraph.read_graph(delegate.processed, file.named_data)
    graph = xnngraph.read_xnn_graph(delegate.processed, file.named_data)
    try:
        return translated(graph, [method.values[id] for id in calls_of(method, number)[0].args])
    except UnsupportedError as error:
        raise UnsupportedError(f"{file.path.name} ({method.name}, delegate {number}): {error}") from None


def calls_of(method: MethodFile, number: int) -> Sequence[DelegateCall]:
    return [i for i in method.instructions if isinstance(i, DelegateCall) and i.delegate == number]
