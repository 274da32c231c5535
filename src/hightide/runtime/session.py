"""What the GPU session and the NumPy session have in common."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from hightide.errors import HightideError
from hightide.graph.graph import Graph, OpCall
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.planning.levels import InputSpec
from hightide.planning.planner import Plan, Planner
from hightide.units import counted

Want: TypeAlias = Sequence[int] | None  # the outputs to bring back; None: all
Feed: TypeAlias = Mapping[int, int]  # output -> input
NONE_FED: Feed = MappingProxyType({})


@dataclass(frozen=True)
class Fed:
    """An input that the run before left on the device, of these dims; see `Session.launch`."""

    dims: Dims


class Session(Protocol):
    """A graph, built once, run at any level. As a context manager it is closed at the end.

    Calls from several threads take turns.
    """

    name: str  # of the adapter, or "NumPy"
    graph: Graph
    specs: list[InputSpec]
    planner: Planner

    def run(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Outputs at the live dims of `given`."""

    def launch(self, given: Sequence[Any], want: Want = None, feed: Feed = NONE_FED) -> Any:
        """Start a run; `collect` waits for it. Runs are collected in the order they are launched in.

        `want` names the outputs to bring back (all). `feed` maps an output to an input: the output's last
        element becomes that input's first, for a later run that gives `Fed` there.
        """

    def collect(self, ticket: Any) -> list[np.ndarray]: ...

    def abandon(self) -> None:
        """Forget the runs that are under way: they end, and nobody collects them."""

    def first_odd(self, given: Sequence[Any]) -> OpCall | None:
        """Run, and give the first op whose output has NaN or +infinity."""

    def level(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Plan, Env]:
        """The inputs as arrays, the plan of their level, and the input elements that SymInts read."""

    def reset(self) -> None:
        """Put mutable state (KV caches) back to what the program says it is at the start."""

    def snapshot(self) -> Any:
        """The state as it is now, for `restore`. Only the last snapshot is kept."""

    def restore(self, snapshot: Any) -> None: ...

    def read_state(self) -> list[np.ndarray]:
        """Mutable state as arrays, in a fixed order."""

    def write_state(self, arrays: Sequence[np.ndarray]) -> None: ...

    def recover(self) -> None:
        """Build anew what was on a device that was lost, as the program has it at the start."""

    def device_bytes(self) -> dict[str, int]:
        """Memory by kind."""

    def close(self) -> None:
        """Free the session's memory at once; every later call is refused."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...


Entered = TypeVar("Entered", bound="BaseSession")


class BaseSession:
    """How a session is closed and shown."""

    name: str
    graph: Graph
    specs: list[InputSpec]
    closed = False

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held by the thread whose turn it is

    def close(self) -> None:
        self.closed = True

    def check_open(self) -> None:
        if self.closed:
            raise HightideError(f"this session on {self.name} is closed")

    def __enter__(self: Entered) -> Entered:
        self.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {_type(spec)}" for spec in self.specs)
        what = "closed" if self.closed else f"{counted(len(self.graph.calls), 'op')} ({inputs})"
        return f"<{type(self).__name__} on {self.name}: {what}>"


def is_odd(array: np.ndarray) -> bool:
    """Whether there is NaN or +infinity; -infinity masks things out."""
    return array.dtype.kind == "f" and not bool((array < np.inf).all())


def _type(spec: InputSpec) -> str:
    dims = (f"≤{dim}" if spec.dynamic and dim > 1 else str(dim) for dim in spec.dims)
    return f"{spec.dtype}[{', '.join(dims)}]"
