"""A text decoder on a device, one window of audio after the other: what a window settles is computed once.

The keys and values that a decoder makes of the encoder's output are the same for every token. Where the method is one
graph they are taken apart (see `fuse/once.py`), computed when a window begins, and stay on the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hightide.errors import UnsupportedError
from hightide.fuse.once import SplitGraph, split_at_input
from hightide.planning.levels import InputSpec
from hightide.pte.method_info import MethodInfo
from hightide.pte.program import Method, Program
from hightide.runtime.build import SessionOptions, build_session
from hightide.runtime.closing import Closing
from hightide.runtime.session import Fed, Session


class TextSteps(Closing):
    """`text_decoder(input_ids, encoder_output, cache_position)`, in any order, with a KV cache."""

    def __init__(self, program: Program, name: str) -> None:
        info = program.methods[name]
        self.ids, self.heard, self.position = (_place(program, info, *kind) for kind in KINDS)
        self.max_tokens = info.inputs[self.ids].dims[1] if info.inputs[self.ids].dynamic else 1
        self.many_positions = info.inputs[self.position].dynamic
        graph = program.single_graph(name)
        split = None if graph is None else split_at_input(graph, self.heard)
        self._steps: _MethodSteps | _SplitSteps
        if split is None:
            self._steps = _MethodSteps(program.method(name), self.heard)
        else:
            self._steps = _SplitSteps(program, info, split, self.heard)

    def begin(self, heard: np.ndarray) -> None:
        """A new window: what the encoder gave. The cache is empty again."""
        self._steps.begin(heard)

    def run(self, ids: Sequence[int], position: int) -> np.ndarray:
        """Logits [tokens, vocabulary] of these tokens, the first of them at `position`; maybe of the last one only."""
        rows = []
        for first in range(0, len(ids), self.max_tokens):
            some = ids[first : first + self.max_tokens]
            at = position + first
            positions = np.arange(at, at + (len(some) if self.many_positions else 1))
            given = {self.ids: np.array([some]), self.position: positions}
            logits = self._steps.run([given[n] for n in sorted(given)])
            rows.append(logits.reshape(-1, logits.shape[-1]))
        return np.concatenate(rows)

    def close(self) -> None:
        self._steps.close()


class _MethodSteps:
    """The method as it is, which is given the encoder's output at every call."""

    def __init__(self, method: Method, heard_at: int) -> None:
        self.method, self.heard_at = method, heard_at

    def begin(self, heard: np.ndarray) -> None:
        self.method.reset()
        self.heard = heard

    def run(self, given: list[np.ndarray]) -> np.ndarray:
        given.insert(self.heard_at, self.heard)
        return self.method(*given)[0]

    def close(self) -> None:
        self.method.close()


class _SplitSteps:
    """Two sessions: one for a window, one for its tokens."""

    def __init__(self, program: Program, info: MethodInfo, split: SplitGraph, heard: int) -> None:
        specs = list(info.inputs)
        encoded = specs.pop(heard)
        crossing = len(split.first.outputs)
        names = [*(spec.name for spec in specs), *(f"from the encoder {n}" for n in range(crossing))]
        dynamic = [*(spec.dynamic for spec in specs), *[encoded.dynamic] * crossing]
        if split.keeps_input:
            names.append(encoded.name)
            dynamic.append(encoded.dynamic)
        options = SessionOptions(choices=program.routes)
        self.window: Session = build_session(split.first, program.gpu, [encoded.dynamic], [encoded.name], options)
        self.token: Session = build_session(split.rest, program.gpu, dynamic, names, options)
        self.keeps_input = split.keeps_input
        self.fixed: list[Fed] = []

    def begin(self, heard: np.ndarray) -> None:
        self.token.reset()
        arrays = [*self.window.run([heard]), *([heard] if self.keeps_input else [])]
        self.fixed = [Fed(array.shape, array) for array in arrays]

    def run(self, given: list[np.ndarray]) -> np.ndarray:
        (logits,) = self.token.collect(self.token.launch([*given, *self.fixed], want=[0]))
        self.fixed = [Fed(fed.dims) for fed in self.fixed]  # they are on the device now
        return logits

    def close(self) -> None:
        self.window.close()
        self.token.close()


KINDS = (("i", 2, "token ids [1, S]"), ("f", 3, "what the encoder gave [1, rows, width]"), ("i", 1, "positions [S]"))


def _place(program: Program, info: MethodInfo, kind: str, rank: int, what: str) -> int:
    """The input of this kind, of which there must be one."""

    def fits(spec: InputSpec) -> bool:
        return spec.dtype != "object" and np.dtype(spec.dtype).kind == kind and len(spec.dims) == rank

    found = [n for n, spec in enumerate(info.inputs) if fits(spec)]
    if len(found) != 1 or len(info.inputs) != len(KINDS):
        takes = f"{info.name}{info!r}"
        raise UnsupportedError(
            f"{program.file.path.name} is not a speech model: {takes} must have one input for {what}"
        )
    return found[0]
