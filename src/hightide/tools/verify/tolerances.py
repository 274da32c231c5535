"""How much an op's own error may be, of the largest value in its row: see the table in `docs/verify.md`.

Where a result is beyond its tolerance, the op's reference is run once more in float32: an op whose exact
result cannot be had in that precision (a difference of nearly equal numbers, a value halfway between two
codes) is allowed a few times what float32 itself is off by.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.ops import REGISTRY
from hightide.ops.choices import Choices
from hightide.ops.contract import Dispatch, Kernel, Scratch, Tensor

HALF = 2e-3  # anything that is held or computed in halves
FEW_TIMES = 8  # what float32 is off by that is allowed where an op is ill-conditioned
CHAINED = 1e-3  # of the outputs of a whole run, against the references
CHAINED_HALVES = 2e-2  # the same where some tensors are held as halves
CHAINED_CODES = 5e-2  # the same where activations are rounded to codes: one that falls the other way moves a row
CODES = ("quantize", "q8ta", "q8csw", "dq8ca", "8da")  # what the names of such ops contain


def tolerance_of(name: str, dispatches: Iterable[Dispatch]) -> float:
    """Of the op's own error, with the routes that these dispatches take."""
    dispatches = list(dispatches)
    written = (b for d in dispatches for b in d.writes if isinstance(b, Tensor))
    halves = any(b.dtype == "float16" for b in written) or any(_computes_in_halves(d.kernel) for d in dispatches)
    usual = REGISTRY[name].tolerance
    if any(_rounds_what_was_computed(d) for d in dispatches):
        return CHAINED_CODES
    return max(usual, HALF) if halves else usual


def _rounds_what_was_computed(dispatch: Dispatch) -> bool:
    """Whether codes are made of what a dispatch before it gave: a value halfway between two may fall the other way."""
    return dispatch.kernel.name == "activations_int8" and any(isinstance(read, Scratch) for read in dispatch.reads)


@cache
def _computes_in_halves(kernel: Kernel) -> bool:
    return "enable f16" in kernel.shader().text


def chained_tolerance(graph: Graph, choices: Choices) -> float:
    """Of the outputs of a whole run."""
    if not choices.exact or any(code in call.name for call in graph.calls for code in CODES):
        return CHAINED_CODES
    return CHAINED_HALVES if any(isinstance(v, TensorValue) and v.dtype == "float16" for v in graph.values) else CHAINED
