"""The inputs of runs on a GPU: arrays that fit their specs, as the GPU holds them, written where they changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hightide.gpu.recorder import Recorder
from hightide.graph.graph import Graph
from hightide.graph.values import Dims, TensorValue
from hightide.planning.levels import InputSpec, check_count, check_int32
from hightide.runtime.session import Fed, Feed
from hightide.runtime.session_memory import SessionMemory
from hightide.runtime.step_block import SYMINTS
from hightide.runtime.words import held_dtype, whole_words


class SessionInputs:
    """The inputs of one graph."""

    def __init__(self, graph: Graph, specs: Sequence[InputSpec]) -> None:
        self.ids, self.specs = graph.inputs, specs
        values = [graph.values[id] for id in graph.inputs]
        dtypes = [value.dtype if isinstance(value, TensorValue) else "int64" for value in values]
        self._held = [held_dtype(dtype) for dtype in dtypes]
        self._as_it_is = [
            held == spec.dtype and held in ("float32", "int32") for held, spec in zip(self._held, specs, strict=True)
        ]

    def arrays(self, given: Sequence[Any]) -> list[np.ndarray]:
        """As the graph takes them; of what is on the device already, an array of the same dims."""
        check_count(self.specs, given)
        return [
            _stand_in(spec.dtype, value.dims) if type(value) is Fed else spec.array(value)
            for spec, value in zip(self.specs, given, strict=True)
        ]

    def narrowed(self, given: Sequence[Any], arrays: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """As the GPU holds them: int64 checked and narrowed, in whole words; None where nothing is to be written."""
        return [
            array if as_it_is and type(value) is not Fed else self._narrowed(n, value, array)
            for n, (as_it_is, value, array) in enumerate(zip(self._as_it_is, given, arrays, strict=True))
        ]

    def write(
        self,
        memory: SessionMemory,
        recorder: Recorder,
        narrowed: Sequence[np.ndarray | None],
        symints: np.ndarray,
        feed: Feed,
    ) -> tuple[int, int]:
        """Small inputs and SymInts as far as they changed, other inputs whole: how many bytes of inputs and SymInts.

        Those in `feed` will be written by the run.
        """
        step, whole, small = memory.step, 0, []
        for id, array in zip(self.ids, narrowed, strict=True):
            if array is None or not array.size:
                continue
            if id in step.regions:
                small.append((id, array))
            elif (buffer := memory.input_buffer(id)) is not None:
                recorder.write(buffer, 0, array)
                whole += array.nbytes
        if symints.size:
            small.append((SYMINTS, symints))
        changed = step.write(recorder, small)
        for position in feed.values():
            step.forget(self.ids[position])
        of_symints = changed.pop(SYMINTS, 0)
        return whole + sum(changed.values()), of_symints

    def _narrowed(self, n: int, given: Any, array: np.ndarray) -> np.ndarray | None:
        if isinstance(given, Fed):
            if given.first is None:
                return None
            array = given.first
        if array.dtype == np.int64 and array.size:
            check_int32(self.specs[n].name, int(array.min()), int(array.max()))
        return whole_words(array.astype(self._held[n], copy=False))


@cache
def _stand_in(dtype: str, dims: Dims) -> np.ndarray:
    """Dims without memory."""
    return np.broadcast_to(np.zeros((), dtype), dims)
