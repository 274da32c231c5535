"""What a recorder runs: commands in order, and the copies at their end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hightide.gpu.device import Region
from hightide.gpu.native import offset
from hightide.gpu.pipelines import BindGroup, Pipeline
from hightide.wgsl.grid import fold


@dataclass(slots=True)
class Command:
    """One dispatch, ready to record: WebGPU objects, the place of its parameters, its workgroups."""

    pipeline: Pipeline
    group: BindGroup
    params_offset: int
    groups: Hashable  # a number, or a formula that the owner of the recording evaluates before each run
    call: object  # what it belongs to: dispatches of one call are neighbours

    @property
    def label(self) -> str:
        return f"{self.call} {self.pipeline.shader.name}"


class BufferCopy(NamedTuple):
    """The first `nbytes` of a region to an offset of the readback buffer, or of `target`."""

    source: Region
    nbytes: int
    offset: int
    target: Any = None


@dataclass
class Recording:
    """Commands and copies, with the native handles looked up once."""

    commands: list[Command]
    copies: list[BufferCopy]
    native: list[list[Any]] = field(init=False)  # [pipeline, group, offset, x, y], as the calls take them
    live_grids: dict[Hashable, list[list[Any]]] = field(init=False)  # formula -> the entries of `native` it sizes

    def __post_init__(self) -> None:
        self.native, self.live_grids = [], {}
        for command in self.commands:
            x, y = fold(command.groups) if isinstance(command.groups, int) else (0, 1)
            entry = [command.pipeline.address, command.group.address, offset(command.params_offset), x, y]
            self.native.append(entry)
            if not isinstance(command.groups, int):
                self.live_grids.setdefault(command.groups, []).append(entry)

    def ending_with(self, copies: list[BufferCopy]) -> Recording:
        """The same commands with other copies."""
        other = copy.copy(self)
        other.copies = copies
        return other

    def size_grids(self, evaluate: Callable[[Any], int]) -> None:
        """Size the grids that follow a formula; layers share their formulas."""
        for formula, entries in self.live_grids.items():
            x, y = fold(max(0, evaluate(formula)))
            for entry in entries:
                entry[3], entry[4] = x, y

    def grids(self) -> list[tuple[int, int]]:
        """The grids that follow a formula, as they are sized now."""
        return [(entries[0][3], entries[0][4]) for entries in self.live_grids.values()]


@dataclass(frozen=True)
class Submission:
    """A step under way: where its outputs go, and the number to wait for (None: it was waited for)."""

    readback: Any
    index: int | None


class Watch:
    """Looks on while a step runs one call at a time; a subclass says at what."""

    def before(self, call: Any) -> None:
        """The call's dispatches are about to run."""

    def after(self, call: Any) -> None:
        """They have run. A DeviceError raised here stops the step."""

    def failed(self) -> None:
        """A call could not run, or `after` refused what it did."""
