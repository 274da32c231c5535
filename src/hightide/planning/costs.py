"""What a dispatch costs at its live dims: the bytes it has to move and its floating-point operations.

Bytes are the least that the op needs: every tensor once, at its live dims and as it is held (a weight in its
blocks, the part of a KV cache that is seen, the rows of a table that are picked). A kernel that reads something
twice, or that misses its caches, moves more, and so reaches less of the adapter's bandwidth. One
multiplication with its addition is two operations; what ops do per element beside their products is counted
roughly. Operations on integers count like those on floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from hightide.graph.symbols import Env, evaluate
from hightide.ops import REGISTRY
from hightide.ops.contract import Dispatch, LiveInt, Scratch, Tensor
from hightide.planning.memory import gpu_bytes
from hightide.planning.planner import Plan, Step

SOFTMAX = 5  # operations per element of a softmax
Arguments: TypeAlias = Mapping[str, Any]  # an op's live arguments, by the names that its `plan` gives them


@dataclass(frozen=True)
class Cost:
    bytes_read: int = 0
    bytes_written: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.flops + other.flops,
        )


def cost_of(step: Step, env: Env, plan: Plan | None = None) -> Cost:
    """The cost of one dispatch in a run with these input elements; with its plan, scratch is counted too."""
    if evaluate(step.dispatch.groups, env) <= 0:
        return Cost()
    names = arguments(step)
    sizes = {} if plan is None else plan.scratch_sizes
    family = family_of(step.call.name)
    if family == "attention":
        return _attention(step.dispatch, names, env, sizes)
    read = sum(_touched(family, t, step.dispatch, names) for t in _distinct(step.dispatch.reads))
    written = sum(_bytes(t) for t in _distinct(step.dispatch.writes))
    if "tensors" in names:  # a dispatch of a `cat` places one part
        written = min(written, read)
    read += sum(sizes.get(s, 0) for s in step.dispatch.reads if isinstance(s, Scratch))
    written += sum(sizes.get(s, 0) for s in step.dispatch.writes if isinstance(s, Scratch))
    return Cost(read, written, int(_FLOPS.get(family, _per_element(1))(step.dispatch, names)))


def arguments(step: Step) -> dict[str, Any]:
    """The live arguments of the step's op by name; those that its `plan` takes as `*args` are under "*"."""
    return {**step.op.arguments(), "*": tuple(step.op.arguments().values())}


@cache
def family_of(name: str) -> str:
    """What kind of work an op is: "linear", "matmul", "conv", else the folder it is in ("norm", "attention")."""
    short = name.split(".")[-2] if "." in name else name
    if "linear" in short:
        return "linear"
    if short.endswith("mm"):
        return "matmul"
    if "conv" in short:
        return "conv"
    return REGISTRY[name].family if name in REGISTRY else ""


# ---- bytes


def _distinct(bindings: tuple[Any, ...]) -> Iterator[Tensor]:
    """The tensors among `bindings`; a kernel may bind one twice, to see it as two types."""
    seen = set()
    for binding in bindings:
        if isinstance(binding, Tensor) and binding.value.id not in seen:
            seen.add(binding.value.id)
            yield binding


def _bytes(tensor: Tensor) -> int:
    return gpu_bytes(tensor.dtype, tensor.dims)


def _touched(family: str, tensor: Tensor, dispatch: Dispatch, names: Arguments) -> int:
    """How much of a tensor that is read a dispatch needs."""
    whole = _bytes(tensor)
    if not whole:
        return 0
    if family in ("movement", "gather") and not _is_index(tensor, dispatch):
        count = sum(out.numel for out in _distinct(dispatch.writes))
        return min(whole, math.ceil(whole / tensor.numel * count))
    if family == "embedding" and isinstance(indices := names.get("indices"), Tensor) and not _same(tensor, indices):
        weight = names.get("weight")
        rows = sum(part.dims[0] for part in weight) if isinstance(weight, tuple) else tensor.dims[0]
        return min(whole, math.ceil(whole / max(1, rows) * indices.numel))
    if family == "rotary" and _same(tensor, names.get("cos"), names.get("sin")):
        return min(whole, _bytes_of_rows(tensor, names["xq"].dims[1]))
    return whole


def _is_index(tensor: Tensor, dispatch: Dispatch) -> bool:
    return len(dispatch.reads) > 1 and not _same(tensor, dispatch.reads[0])


def _same(tensor: Tensor, *others: Any) -> bool:
    return any(isinstance(other, Tensor) and tensor.value.id == other.value.id for other in others)


def _bytes_of_rows(tensor: Tensor, rows: int) -> int:
    return math.ceil(_bytes(tensor) / max(1, tensor.rows) * rows)


# ---- operations


def _per_element(count: float) -> Callable[[Dispatch, Arguments], float]:
    """So many operations for each element of the largest tensor that is not a weight."""

    def flops(dispatch: Dispatch, names: Arguments) -> float:
        bound = (*dispatch.reads, *dispatch.writes)
        sizes = [t.numel for t in _distinct(bound) if t.value.constant is None]
        return count * max(sizes, default=0)

    return flops


def _linear(dispatch: Dispatch, names: Arguments) -> float:
    """2 M N K where the weight is read; a dispatch that only rounds or adds up is one operation per element."""
    x = names.get("x")
    if isinstance(gradient := names.get("gradient"), Tensor):  # training: to the input, or to the weight
        if isinstance(x, Tensor):
            return 2 * gradient.numel * x.width
        return 2 * gradient.numel * sum(t.width for t in _distinct(dispatch.writes))
    weights = names.get("weight")
    ids = {w.value.id for w in (weights if isinstance(weights, tuple) else (weights,)) if isinstance(w, Tensor)}
    read = [t for t in _distinct(dispatch.reads) if t.value.id in ids]
    if not isinstance(x, Tensor) or not read:
        return _per_element(1)(dispatch, names)
    return 2 * x.numel * sum(weight.dims[0] for weight in read)


def _matmul(dispatch: Dispatch, names: Arguments) -> float:
    x = names["x"]
    return 2 * x.width * sum(t.numel for t in _distinct(dispatch.writes))


def _conv(dispatch: Dispatch, names: Arguments) -> float:
    """Two operations per tap: of each output pixel, or, transposed, of each input pixel."""
    weights = [t for t in _distinct(dispatch.reads) if t.rank > 2 and t.value.constant is not None]
    weight, x = names.get("weight", weights[0] if weights else None), names.get("x")
    if not isinstance(weight, Tensor) or not isinstance(x, Tensor) or not weight.dims[0]:
        return _per_element(2)(dispatch, names)
    out = sum(t.numel for t in _distinct(dispatch.writes))
    # The one flag that convolutions have; those of 8-bit codes have a route for it.
    transposed = any(arg is True for arg in names["*"]) or "transposed" in dispatch.kernel.name
    return 2 * (x.numel if transposed else out) * (weight.numel // weight.dims[0])


_FLOPS: dict[str, Callable[[Dispatch, Arguments], float]] = {
    "linear": _linear,
    "matmul": _matmul,
    "conv": _conv,
    "norm": _per_element(4),
    "softmax": _per_element(SOFTMAX),
    "rotary": _per_element(3),
    "resample": _per_element(8),
    "quantize": _per_element(4),
    "movement": _per_element(0),
    "gather": _per_element(0),
    "embedding": _per_element(0),
    "views": _per_element(0),
    "fill": _per_element(0),
}


# ---- attention


def _attention(dispatch: Dispatch, names: Arguments, env: Env, sizes: Mapping[Scratch, int]) -> Cost:
    """A dispatch of attention: which part it is shows in what it reads and writes."""
    seen = _seen(names, env)
    if seen is None:
        return Cost()
    reads, writes = list(_distinct(dispatch.reads)), list(_distinct(dispatch.writes))
    # Scratch holds what parts of the context give: as many as there are keys for.
    live = seen.keys / max(1, seen.capacity)
    read = sum(sizes.get(s, 0) for s in dispatch.reads if isinstance(s, Scratch)) * live
    written = sum(sizes.get(s, 0) for s in dispatch.writes if isinstance(s, Scratch)) * live
    for tensor in reads:
        if seen.cached and _same(tensor, seen.k, seen.v):
            read += _bytes(tensor) * (seen.keys - seen.first) / max(1, seen.capacity)
        elif _same(tensor, names.get("cos"), names.get("sin")):
            read += min(_bytes(tensor), _bytes_of_rows(tensor, seen.tokens))
        else:
            read += _bytes(tensor)
    for tensor in writes:
        in_cache = seen.cached and _same(tensor, seen.k, seen.v)
        written += _bytes(tensor) * (seen.tokens / max(1, seen.capacity) if in_cache else 1)
    products = [t.width for t in (seen.k, seen.v) if isinstance(t, Tensor) and _same(t, *reads)]
    if products:
        flops = seen.heads * seen.pairs * (2 * sum(products) + SOFTMAX)
    else:  # a cache update, a rotation, or parts joined: three operations per word that is new
        flops = 3 * sum(t.numel for t in reads if t.value.constant is None) + 3 * int(read) // 4 * (not reads)
    return Cost(math.ceil(read), math.ceil(written), flops)


@dataclass(frozen=True)
class _Seen:
    """What attention looks at in a run."""

    k: Tensor
    v: Tensor | None
    cached: bool  # keys and values are read from a position on, [1, C, H, D]; else they are [B, H, S, D]
    heads: int
    tokens: int
    keys: int
    first: int  # the first key that any query sees
    capacity: int
    pairs: int  # (query, key) pairs


def _seen(names: Arguments, env: Env) -> _Seen | None:
    q = names.get("q", names.get("qkv", names.get("x")))
    k, v = names.get("k_cache", names.get("cache", names.get("k"))), names.get("v_cache", names.get("v"))
    if not isinstance(q, Tensor) or not isinstance(k, Tensor):
        return None
    cached = "position" in names
    if not cached:
        tokens, keys, heads = q.dims[2], k.dims[2], q.dims[0] * q.dims[1]
        return _Seen(k, v, False, heads, tokens, keys, 0, keys, tokens * keys)
    tokens, position = q.dims[1], _value(names["position"], env)
    keys, window = position + tokens, int(names.get("window") or 0)
    heads = int(names["heads"]) if "heads" in names else q.dims[2] if q.rank == 4 else 1
    pairs = visible_pairs(tokens, position, keys, bool(names.get("causal", True)), window)
    first = max(0, position - window + 1) if window else 0
    return _Seen(k, v, True, heads, tokens, keys, first, k.dims[1], pairs)


def visible_pairs(tokens: int, position: int, keys: int, causal: bool, window: int) -> int:
    """How many (query, key) pairs attention looks at."""
    total = 0
    for at in range(position, position + tokens):
        last = min(at + 1, keys) if causal else keys
        total += last - (max(0, at - window + 1) if window else 0)
    return total


def _value(arg: Any, env: Env) -> int:
    return evaluate(arg.expr if isinstance(arg, LiveInt) else int(arg or 0), env)
