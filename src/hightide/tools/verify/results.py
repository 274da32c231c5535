"""What a verification found, per op, per level and per file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from hightide.graph.values import Dims
from hightide.tools.verify.compare import Errors
from hightide.tools.verify.side_by_side import PairedLevel

Status = Literal["ok", "bad", "view", "host", "empty"]  # view, host, empty: nothing ran


@dataclass(frozen=True)
class RouteResult:
    """An op on a route that is not the one it takes here."""

    choice: str
    option: str
    routes: tuple[str, ...]
    errors: Errors | None
    problem: str = ""


@dataclass(frozen=True)
class OpResult:
    """One op call at one level."""

    index: int
    name: str
    routes: tuple[str, ...]  # its kernels
    dims: tuple[Dims, ...]  # live dims of its outputs
    status: Status
    tolerance: float = 0.0
    alone: Errors | None = None  # on the reference's inputs: the op's own error
    chained: Errors | None = None  # on the GPU's own inputs: the error that has come here
    what: str = ""  # the tensor that these are of
    problem: str = ""  # a sentence, if it is bad
    hints: tuple[str, ...] = ()  # what else is known about it
    others: tuple[RouteResult, ...] = ()

    @property
    def label(self) -> str:
        return f"op {self.index} ({self.name})"


@dataclass(frozen=True)
class LevelResult:
    """One part of a program at one level."""

    part: str
    at: Mapping[str, int]
    ops: tuple[OpResult, ...]
    device: str = ""
    outputs: tuple[Errors, ...] = ()  # of the whole run, against the references
    output_tolerance: float = 0.0
    problems: tuple[str, ...] = ()  # of the run as a whole

    @property
    def culprit(self) -> OpResult | None:
        """The first op that is wrong by itself."""
        return next((op for op in self.ops if op.status == "bad"), None)

    @property
    def passed(self) -> bool:
        return not self.problems and self.culprit is None and not any(self.bad_routes)

    @property
    def bad_routes(self) -> Iterator[tuple[OpResult, RouteResult]]:
        return ((op, route) for op in self.ops for route in op.others if route.problem)

    @property
    def name(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.at.items()) or "its one level"


@dataclass
class VerifyReport:
    """A file, verified."""

    file: str
    devices: list[str]
    seed: int
    levels: list[LevelResult] = field(default_factory=list)
    against: str = ""  # the other file, or the other adapter
    pairs: list[PairedLevel] = field(default_factory=list)  # levels beside those of the other
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        verdicts = [*(level.passed for level in self.levels), *(pair.passed for pair in self.pairs)]
        return bool(verdicts) and all(verdicts)

    @property
    def culprit(self) -> tuple[LevelResult, OpResult] | None:
        """The first op that is wrong by itself, and where it was."""
        return next(((level, op) for level in self.levels if (op := level.culprit) is not None), None)

    def as_json(self) -> dict[str, Any]:
        """Everything, in what JSON has; numbers that are not finite as text."""
        found = self.culprit
        return {
            "passed": self.passed,
            "culprit": None
            if found is None
            else {"at": dict(found[0].at), "op": found[1].index, "name": found[1].name},
            **_plain(asdict(self)),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
