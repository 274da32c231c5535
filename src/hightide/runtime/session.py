"""What the GPU session and the NumPy session have in common."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.graph.graph import Graph, OpCall
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.planning.levels import InputSpec
from hightide.planning.planner import Plan, Planner
from hightide.runtime.closing import Closing
from hightide.units import counted

Want: TypeAlias = Sequence[int] | None  # the outputs to bring back; None: all

Feed: TypeAlias = Mapping[int, int]  # output -> input
RowCopies: TypeAlias = Sequence[tuple[int, int, int]]  # (from row, to row, how many)
NONE_FED: Feed = MappingProxyType({})


@dataclass(frozen=True)
class Fed:
    """An input that the run before left on the device, of these dims; see `Session.launch`.

    `first` are new first elements of it.
    """

    dims: Dims
    first: np.ndarray | None = None


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

        `want` names the outputs to bring back (all). `feed` maps an output to an input: the output's elements
        become that input's first, for a later run that gives `Fed` there.
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

    def copy_rows(self, copies: RowCopies) -> None:
        """Copy rows of every state tensor [1, C, ...], one after the other, behind the runs under way."""

    def read_rows(self, first: int, count: int) -> list[np.ndarray]:
        """Rows of every state tensor, in the order of `read_state`."""

    def write_rows(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        """Put back what `read_rows` gave, from row `first` on."""

    def run_into(self, given: Sequence[Any], to: Any, position: int, row: int) -> None:
        """Run, and put the first output into an input [rows, width] of another session, from `row` on.

        Runs there are given `Fed` for it. Between sessions on one device nothing comes back to the host.
        """

    def fill_rows(self, position: int, row: int, rows: np.ndarray) -> None:
        """Write rows of an input [rows, width] that runs are given `Fed` for."""

    def sibling(self) -> Any:
        """One more session of the same constants, which are held once; state, inputs and activations are its own."""

    def recover(self) -> None:
        """Build anew what was on a device that was lost, as the program has it at the start."""

    def device_bytes(self) -> dict[str, int]:
        """Memory by kind."""

    def close(self) -> None:
        """Free the session's memory at once; every later call is refused."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...


Entered = TypeVar("Entered", bound="BaseSession")


class BaseSession(Closing):
    """How a session is closed and shown."""

    name: str
    graph: Graph
    specs: list[InputSpec]
    closed = False
    max_levels = 64  # plans that are kept

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held by the thread whose turn it is

    def close(self) -> None:
        self.closed = True

    def check_rows(self, position: int, row: int, dims: Dims) -> int:
        """How many rows a tensor of these dims is of an input [rows, width]; InputError if they do not fit there."""
        most, width = self.specs[position].dims
        count = math.prod(dims[:-1])
        if dims[-1:] != (width,) or not 0 <= row <= row + count <= most:
            name = self.specs[position].name
            raise InputError(f"{list(dims)} does not go into rows {row} to {row + count} of {name} [{most}, {width}]")
        return count

    def check_open(self) -> None:
        if self.closed:
            raise HightideError(f"this session on {self.name} is closed")

    def __enter__(self: Entered) -> Entered:
        self.check_open()
        return self

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {_type(spec)}" for spec in self.specs)
        what = "closed" if self.closed else f"{counted(len(self.graph.calls), 'op')} ({inputs})"
        return f"<{type(self).__name__} on {self.name}: {what}>"


def state_rows(dims: Iterable[Dims]) -> int:
    """How many rows state has: C, if all of it is [1, C, ...]."""
    rows = {d[1] if len(d) > 1 and d[0] == 1 else 0 for d in dims}
    if len(rows) != 1 or 0 in rows:
        raise InputError("only state of dims [1, rows, ...] with as many rows everywhere is copied by rows")
    return rows.pop()


def check_rows_in(capacity: int, *spans: tuple[int, int]) -> None:
    """InputError unless each (first row, how many) is within the state."""
    for first, count in spans:
        if first < 0 or count < 0 or first + count > capacity:
            raise InputError(f"rows {first} to {first + count} are outside the {capacity} of the state")


def is_odd(array: np.ndarray) -> bool:
    """Whether there is NaN or +infinity; -infinity masks things out."""
    return array.dtype.kind == "f" and not bool((array < np.inf).all())


def _type(spec: InputSpec) -> str:
    dims = (f"≤{dim}" if spec.dynamic and dim > 1 else str(dim) for dim in spec.dims)
    return f"{spec.dtype}[{', '.join(dims)}]"
