"""Verifies a part of a program at a list of levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hightide.ops.binding import mutated_ids
from hightide.ops.contract import CACHING
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.tools.levels.level_sources import GraphSource
from hightide.tools.opened_file import Part
from hightide.tools.verify.compare import Errors, compare
from hightide.tools.verify.full_run import check_full_run
from hightide.tools.verify.results import LevelResult
from hightide.tools.verify.tolerances import chained_tolerance
from hightide.tools.verify.walk import ReadsPoison, Walker


@dataclass(frozen=True)
class VerifySettings:
    seed: int = 0
    tolerance: float | None = None  # of an op's own error; None: by its kind
    output_tolerance: float | None = None  # of the outputs of a whole run
    routes: bool = True  # also those that are not taken
    repeats: int = 2  # whole runs that must give the same bytes
    tokens: tuple[int, ...] | None = None  # instead of random ones


class PartVerifier:
    """One part on one device, at any level."""

    def __init__(self, part: Part, session: GpuSession, settings: VerifySettings) -> None:
        self.part, self.session, self.settings = part, session, settings
        self.walker = Walker(session, settings.tolerance, settings.routes)
        self.outputs: list[np.ndarray] | None = None  # of the last level's run as a whole

    def level(
        self,
        at: Mapping[str, int],
        given: Sequence[np.ndarray] | None = None,
        state: Mapping[int, np.ndarray] | None = None,
    ) -> LevelResult:
        """Everything at one level, on inputs and state that are given, or else made."""
        given = self.inputs_at(at) if given is None else given
        state = self.state_at(at) if state is None else dict(state)
        try:
            poisoned = self._poisoned(state, at.get("pos", 0))
            ops, chain = self.walker.walk(given, poisoned, poisoned=poisoned is not state)
            state = poisoned
        except ReadsPoison:  # state that is read whole, under a mask
            ops, chain = self.walker.walk(given, state, poisoned=False)
        if any(op.status == "bad" for op in ops) or not chain:
            return LevelResult(self.part.name, at, tuple(ops), self.session.name)
        tolerance = self.settings.output_tolerance
        if tolerance is None:
            tolerance = chained_tolerance(self.session.graph, self.session.planner.choices)
        whole, problems = check_full_run(self.walker, given, state, chain, self.settings.repeats)
        self.outputs = None if whole is None else whole[0]
        outputs: list[Errors] = []
        if whole is not None:
            for n, (got, id) in enumerate(zip(whole[0], self.session.graph.outputs, strict=True)):
                errors = compare(got, self.walker.expected(id), tolerance)
                outputs.append(errors)
                if errors.bad and got.dtype.kind == "f" and not problems:
                    problems.append(
                        f"output {n} is off by {errors.max_rel:.1e} of its range, though every op is right alone"
                    )
            problems += self._check_passes(given, state, tolerance)
        name = self.session.name
        return LevelResult(self.part.name, at, tuple(ops), name, tuple(outputs), tolerance, tuple(problems))

    def inputs_at(self, at: Mapping[str, int]) -> list[np.ndarray]:
        """Random inputs, with the tokens of the prompt from the position on."""
        tokens, position = self.settings.tokens, at.get("pos", 0)
        return self.part.inputs_at(at, self.settings.seed + position, tokens and (tokens[position:] or tokens))

    def state_at(self, at: Mapping[str, int]) -> dict[int, np.ndarray]:
        """The state that a run at this level finds: after the tokens before its position were read."""
        self.session.reset()
        ids = sorted(self.session.planner.aliases.state)
        position = at.get("pos", 0)
        if ids and position:
            if isinstance(self.part.source, GraphSource):
                self._read_before(at, position)
            else:
                self._random_state()
            if any(not np.isfinite(a).all() for a in self.session.read_state() if a.dtype.kind == "f"):
                self._random_state()  # a broken op fills it with NaN; what follows is to be seen all the same
        return dict(zip(ids, self.session.read_state(), strict=True))

    def _read_before(self, at: Mapping[str, int], position: int) -> None:
        most = self.part.symbols.get("S", self._fixed_tokens())
        done = 0
        while done < position:
            count = min(most, position - done)
            level = {**at, "pos": done}
            level |= {name: count for name in ("S",) if name in self.part.symbols}
            level |= {name: min(at.get(name, 1), count) for name in ("keep",) if name in self.part.symbols}
            self.session.run(self.inputs_at(level))
            done += count

    def _fixed_tokens(self) -> int:
        dims = self.part.specs[0].dims
        return dims[-1] if dims else 1

    def _random_state(self) -> None:
        rng = np.random.default_rng(self.settings.seed)
        arrays = self.session.read_state()
        self.session.write_state(
            [rng.standard_normal(a.shape).astype(a.dtype) if a.dtype.kind == "f" else a for a in arrays]
        )

    def _poisoned(self, state: Mapping[int, np.ndarray], position: int) -> Mapping[int, np.ndarray]:
        """The state with NaN in the caches from the position on: keys that were not written must not be read."""
        caches: set[int] = set()
        others: set[int] = set()
        root = self.session.planner.aliases.root
        for call, op in zip(self.session.graph.calls, self.session.planner.ops, strict=True):
            (caches if op.family in CACHING else others).update(root[id] for id in mutated_ids(call))
        poisoned = dict(state)
        for id in (caches - others) & state.keys():
            if state[id].ndim == 4 and state[id].dtype.kind == "f":
                poisoned[id] = state[id].copy()
                poisoned[id][:, position:] = np.nan
        return poisoned if any(poisoned[id] is not state[id] for id in state) else state

    @cached_property
    def _plain(self) -> CpuSession:
        """The file's own ops on the references, in float32: twice the memory would show no more."""
        return CpuSession(self.part.graph, self.part.dynamic, self.part.names)

    @cached_property
    def _fused(self) -> CpuSession:
        """The ops that run, on the references of their usual routes."""
        return CpuSession(self.session.graph, self.part.dynamic, self.part.names)

    def _check_passes(self, given: Sequence[Any], state: Mapping[int, np.ndarray], tolerance: float) -> list[str]:
        """Fused ops mean what the file's ops do: both graphs on the references."""
        if self.session.graph.calls == self.part.graph.calls:
            return []
        before = [state[id] for id in sorted(state)]
        if [array.shape for array in self._plain.read_state()] != [array.shape for array in before]:
            return ["fusing changed the state of the program"]
        if not self.session.planner.choices.exact:
            fused = _run_from(self._fused, before, given)
        else:
            fused = [np.asarray(self.walker.expected(id)) for id in self.session.graph.outputs]
        problems = []
        for n, (got, want) in enumerate(zip(fused, _run_from(self._plain, before, given), strict=True)):
            errors = compare(got, want, tolerance)
            if errors.bad and want.dtype.kind == "f":
                problems.append(
                    f"fusing changed what the program means: output {n} of the references is off by"
                    f" {errors.max_rel:.1e} of its range"
                )
        return problems


def _run_from(session: CpuSession, state: Sequence[np.ndarray], given: Sequence[Any]) -> list[np.ndarray]:
    """The outputs of a run from this state, in the order of its values."""
    held = (session.state[id].dtype for id in sorted(session.state))
    session.write_state([array.astype(dtype) for array, dtype in zip(state, held, strict=True)])
    return session.run(given)
