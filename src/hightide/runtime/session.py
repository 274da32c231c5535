"""What the GPU session and the NumPy session have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hightide.graph.graph import Graph
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.planning.levels import InputSpec
from hightide.planning.planner import Plan, Planner


@dataclass(frozen=True)
class Fed:
    """An input that the run before left on the device, of these dims; see `Session.launch`."""

    dims: Dims


class Session(Protocol):
    """A graph, built once, run at any level."""

    name: str
    graph: Graph
    specs: list[InputSpec]
    planner: Planner

    def run(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Outputs at the live dims of `given`."""

    def launch(self, given: Sequence[Any], want: Sequence[int] | None = None, feed: Mapping[int, int] = {}) -> Any:
        """Start a run; `collect` waits for it. Runs are collected in the order they are launched in.

        `want` names the outputs to bring back (all). `feed` maps an output to an input: the output's last
        element becomes that input's first, for a later run that gives `Fed` there.
        """

    def collect(self, ticket: Any) -> list[np.ndarray]: ...

    def level(self, given: Sequence[Any]) -> tuple[list[np.ndarray], Plan, Env]: ...

    def reset(self) -> None:
        """Put mutable state (KV caches) back to what the program says it is at the start."""

    def snapshot(self) -> Any: ...

    def restore(self, snapshot: Any) -> None: ...

    def read_state(self) -> list[np.ndarray]:
        """Mutable state as arrays, in a fixed order."""

    def write_state(self, arrays: Sequence[np.ndarray]) -> None: ...

    def device_bytes(self) -> dict[str, int]:
        """Memory by kind."""

    def close(self) -> None:
        """Free what the session holds on its device; it cannot run after that."""
