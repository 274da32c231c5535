"""The SymInts of a run, where kernels read them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hightide.gpu.device import Device
from hightide.gpu.recorder import Recorder
from hightide.graph.symbols import Env, SymExpr
from hightide.planning.levels import live_symint
from hightide.wgsl.shader import SYMINT_SLOTS


class SymIntBuffer:
    """One word per SymInt, by slot. Only what changed is written."""

    def __init__(self, device: Device, slots: Mapping[int, int]) -> None:
        """`slots`: of each SymInt, by value id."""
        self.slots = slots
        self.buffer = device.buffer(SYMINT_SLOTS * 4, "UNIFORM|COPY_DST", "SymInts")
        self._written: np.ndarray | None = np.zeros(len(slots), np.int32)  # None while it is not known

    def values(self, symints: Mapping[int, SymExpr], env: Env) -> np.ndarray:
        """The words of a run, by slot, from the formulas of its plan."""
        words = np.zeros(len(self.slots), np.int32)
        for id, expr in symints.items():
            words[self.slots[id]] = live_symint(expr, env)
        return words

    def write(self, recorder: Recorder, words: np.ndarray) -> int:
        """Write the span of words that changed since the last run; how many bytes that took."""
        changed = np.arange(len(words)) if self._written is None else np.flatnonzero(words != self._written)
        if not changed.size:
            return 0
        first, last = int(changed[0]), int(changed[-1]) + 1
        self._written = None  # a signal may raise an exception after the write
        recorder.write(self.buffer, first * 4, words[first:last])
        self._written = words
        return (last - first) * 4
