"""A decoder of one sequence as a decoder of many: one step takes rows of several sequences, end to end.

The new graph is built call by call, while it is proven that every row of every value depends on nothing but its own
token, its position and the keys and values of its own sequence; `row_rules.py` says which ops keep that true. What is
not known to keep it is refused: see `NotRaggedError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hightide.errors import InputError
from hightide.fuse.joining import ADAPTED
from hightide.fuse.row_rules import (
    KEEP,
    LENGTH,
    POSITION,
    RULES,
    Counts,
    Fixed,
    Given,
    NotRaggedError,
    Start,
    TokenRows,
    normal,
    refuse,
    same,
)
from hightide.graph.blob import Zeros
from hightide.graph.graph import Graph, OpCall, input_ids, output_ids
from hightide.graph.symbols import Sym, SymExpr
from hightide.graph.values import ITEM_SIZE, Dims, ListValue, LiteralValue, SymIntValue, TensorValue
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.attention.attention import scale_of
from hightide.ops.binding import mutated_ids
from hightide.ops.builder import GraphBuilder
from hightide.ops.contract import ceil_div
from hightide.ops.sampling.sampling import SETTINGS

__all__ = ["ADAPTED_INPUTS", "MEDIA", "RAGGED_DYNAMIC", "RAGGED_INPUTS", "NotRaggedError", "RaggedSizes", "ragged"]

RAGGED_INPUTS = (
    "tokens",
    "chosen",
    "positions",
    "places",
    "wanted",
    "settings",
    "masks",
    "masked",
    "singles",
    "tiles",
    "pages",
    "longest",
)
RAGGED_DYNAMIC = (True, False, True, True, True, True, False, True, True, True, False, False)
ADAPTED_INPUTS = ("adapted", "strengths")  # of a graph with adapters: rows that have some, and how much of each
MEDIA = "media"  # of a graph that is given rows of images
CACHED = ("sdpa_with_kv_cache.default", "llama.sdpa_with_kv_cache.default", "hightide.attention.default")
UPDATES = ("update_cache.default", "llama.update_cache.default")
SHORT_CONV = "hightide.short_conv.default"
CODED = "llama.custom_quantized_sdpa.default"
ATTENDS = ("custom_sdpa.default", "llama.custom_sdpa.default", CODED)


@dataclass(frozen=True)
class RaggedSizes:
    rows: int  # of a step, at most
    wanted: int  # rows whose ids are wanted, at most
    singles: int  # tiles of one row, at most
    tiles: int  # tiles of several rows, at most
    page: int  # tokens of a page
    pages: int  # in the pool of each layer
    table: int  # entries in the page tables of all sequences of a step
    adapters: int = 0  # that rows may have
    media: Dims = ()  # of the rows of images that a step may have, of a graph that `with_embedding` made

    @property
    def inputs(self) -> tuple[str, ...]:
        return RAGGED_INPUTS + (ADAPTED_INPUTS if self.adapters else ()) + ((MEDIA,) if self.media else ())

    @property
    def dynamic(self) -> tuple[bool, ...]:
        return RAGGED_DYNAMIC + ((True, True) if self.adapters else ()) + ((False,) if self.media else ())


def ragged(graph: Graph, sizes: RaggedSizes) -> Graph:
    """The graph with the inputs `sizes.inputs`, and outputs (logits [1, wanted, vocabulary], ids [1, wanted]).

    Its caches become pools of pages. NotRaggedError if it cannot be proven to give what it gives each sequence alone.
    """
    walk = _Walk(graph, sizes)
    for call in _needed(graph):
        walk.take(call)
    return walk.finish()


@dataclass
class _Cache:
    """A KV cache, and the rows that were written to it."""

    held: TensorValue  # in the old graph
    rows: TensorValue | None = None
    read: bool = False


class _Settings(NamedTuple):
    """How ids are chosen."""


class _Ids(NamedTuple):
    """Ids chosen from the logits that have this id."""

    logits: int


class _Adapted(NamedTuple):
    """Which rows have adapters, or how much of each."""

    input: str


class _Number(NamedTuple):
    """An input that only SymInts may be read from."""

    expr: Sym


Known: TypeAlias = TokenRows | Fixed | Start | Counts | _Cache | _Settings | _Ids | _Adapted | _Number | SymExpr


class _Walk:
    """The new graph so far, and what is known of each value of the old one."""

    def __init__(self, graph: Graph, sizes: RaggedSizes) -> None:
        self.graph, self.sizes = graph, sizes
        b = self.builder = GraphBuilder()
        self.known: dict[int, Known] = {}
        self._written = {id for call in graph.calls if call.name in REGISTRY for id in mutated_ids(call)}
        self._counts: dict[bool, SymIntValue] = {}
        t, w = sizes.rows, sizes.wanted
        masks: list[Dims] = [(w, ceil_div(_vocabulary(graph), 32)), (w,)]
        lists: list[Dims] = [(sizes.singles, 4), (sizes.tiles, 4), (sizes.table,), (1,)]
        dims: list[Dims] = [(1, t), (w,), (t,), (t,), (w,), (w, SETTINGS), *masks, *lists]
        dims += [(t,), (t, sizes.adapters)] if sizes.adapters else []
        dims += [sizes.media] if sizes.media else []
        self.inputs: dict[str, TensorValue] = {
            name: b.input(d, "float32" if name in ("settings", "strengths", MEDIA) else "int32")
            for name, d in zip(sizes.inputs, dims, strict=True)
        }
        self._longest = b.call("et_vk.select_as_symint.default", self.inputs["longest"], 0, 0)
        self._take_inputs()

    def _take_inputs(self) -> None:
        given = [self.graph.values[id] for id in self.graph.inputs]
        dims = [value.dims if isinstance(value, TensorValue) else () for value in given]
        if len(dims) == 3 and self.sizes.media:
            media = self.graph.inputs[2]
            if any(call.args.get("media") != media for call in self._readers(media)):
                raise NotRaggedError(f"the input {list(dims[2])} is not rows of images")
            self.known[media] = Fixed(self.inputs[MEDIA])
            dims.pop()
        if len(dims) not in (2, 4, 6) or len(dims[0]) != 2 or dims[0][0] != 1 or dims[1] != (1,):
            found = ", ".join(str(list(d)) for d in dims)
            raise NotRaggedError(f"the inputs are {found}, not tokens [1, S], a position [1] and no others")
        most, adapters = dims[0][1], self.sizes.adapters
        added: list[Dims] = [(most,), (most, adapters)] if adapters else []
        if dims[2:] not in ([], [(1,), (SETTINGS,), *added]):
            raise NotRaggedError(f"the inputs {dims[2:]} are not a number [1] of tokens and {SETTINGS} settings")
        tokens, position, *rest = self.graph.inputs[: len(dims)]
        taken = self.builder.call(
            "hightide.take_tokens.default", self.inputs["tokens"], self.inputs["chosen"], dtype="int32"
        )
        self.known[tokens] = TokenRows(taken, 1, LENGTH, dims[0][1])
        self.positions = TokenRows(self.inputs["positions"], 0, LENGTH, dims[0][1])
        # Where a call takes one token, the position of the first is that of each.
        self.known[position] = self.positions if dims[0][1] == 1 else Start()
        if rest:
            self.known[rest[0]], self.known[rest[1]] = _Number(KEEP), _Settings()
            for id, name in zip(rest[2:], ADAPTED_INPUTS, strict=False):
                self.known[id] = _Adapted(name)

    def _readers(self, id: int) -> list[OpCall]:
        return [call for call in self.graph.calls if id in input_ids(self.graph, call)]

    # ---- one call

    def take(self, call: OpCall) -> None:
        op = REGISTRY.get(call.name)
        if op is None:
            refuse(call, "is not known to hightide")
        given = {name: self._given(call, id) for name, id in call.args.items()}
        if op.family == "symints":
            self.known[call.out] = self._symint(call, given)
        elif call.name in CACHED:
            self._cached(call, given)
        elif call.name in UPDATES:
            self._update(call, given)
        elif call.name in ATTENDS:
            self._attend(call, given)
        elif call.name == SHORT_CONV:
            self._short_conv(call, given)
        elif call.name == ADAPTED:
            self._adapted_linear(call, given)
        elif op.mutates:
            refuse(call, "changes state that is not a KV cache")
        elif call.name == "hightide.sample.default":
            if not isinstance(given["logits"], TokenRows) or not isinstance(given["settings"], _Settings):
                refuse(call, "does not choose from the logits of rows with the settings of the call")
            self.known[call.out] = _Ids(call.args["logits"])
        elif all(isinstance(one, Fixed | int | float | str | None) for one in _flat(given.values())):
            outs = self.emit(call, given)
            self._keep(call, [Fixed(out) for out in outs])
        else:
            rule = RULES.get(call.name)
            if rule is None:
                refuse(call, "is not known to work on each token by itself")
            self._keep(call, rule(self, call, given))

    def _given(self, call: OpCall, id: int) -> Any:
        """What is known of an argument: a literal is itself, a SymInt its formula."""
        value = self.graph.values[id]
        if id in self.known:
            return self.known[id]
        if isinstance(value, LiteralValue):
            return value.value
        if isinstance(value, ListValue):
            return tuple(self._given(call, item) for item in value.items)
        if not isinstance(value, TensorValue) or value.constant is None:
            refuse(call, "reads what an update of a KV cache gives")
        self.known[id] = found = self._cache(call, value) if id in self._written else Fixed(self.builder.copied(value))
        return found

    def _cache(self, call: OpCall, value: TensorValue) -> _Cache:
        if len(value.dims) != 4 or value.dims[0] != 1 or not _is_zero(value):
            refuse(
                call, f"changes state of {list(value.dims)}, which is not an empty KV cache [1, context, heads, depth]"
            )
        return _Cache(value)

    def _pool(self, cache: _Cache, depth: int) -> TensorValue:
        """A new pool of pages, with as many heads as a cache has and of its type."""
        dims = (1, self.sizes.pages * self.sizes.page, cache.held.dims[2], depth)
        zeros = Zeros(math.prod(dims) * ITEM_SIZE[cache.held.stored_dtype])
        return self.builder.copied(replace(cache.held, dims=dims, constant=zeros))

    def _keep(self, call: OpCall, made: list[Any]) -> None:
        for id, known in zip(self._outs(call), made, strict=True):
            self.known[id] = known

    def _outs(self, call: OpCall) -> tuple[int, ...]:
        out = self.graph.values[call.out]
        return out.items if isinstance(out, ListValue) else (call.out,)

    def emit(self, call: OpCall, given: Given, *by_rows: str, **changed: Any) -> tuple[TensorValue, ...]:
        """The call in the new graph, some arguments changed; only those named `by_rows` may have rows."""
        args = {name: self._argument(call, name, one, by_rows) for name, one in {**given, **changed}.items()}
        declared = [argument.name for argument in arguments_of(REGISTRY[call.name])]
        last = max((declared.index(name) for name in args), default=-1)
        in_order = [args.get(name) for name in declared[: last + 1]]
        dtypes = tuple(self.dtype(id) for id in self._outs(call))
        try:
            made = self.builder.call(call.name, *in_order, dtype=dtypes)
        except InputError as error:
            refuse(call, f"does not take rows of several sequences: {error}")
        return made if isinstance(made, tuple) else (made,)

    def _argument(self, call: OpCall, name: str, given: Any, by_rows: tuple[str, ...]) -> Any:
        if isinstance(given, tuple):
            return [self._argument(call, name, one, by_rows) for one in given]
        if isinstance(given, TokenRows):
            if name not in by_rows:
                refuse(call, f"has rows of tokens as its {name}")
            return given.value
        if isinstance(given, Fixed):
            return given.value
        if isinstance(given, Sym):
            refuse(call, f"computes with the number of tokens or the position ({name})")
        if not isinstance(given, int | float | str | None):
            refuse(call, f"has {_described(given)} as its {name}")
        return given

    def dtype(self, id: int) -> str:
        value = self.graph.values[id]
        assert isinstance(value, TensorValue)
        return value.dtype

    def count(self, rows: TokenRows) -> SymIntValue:
        """How many rows there are, as a SymInt of the new graph."""
        if rows.wanted not in self._counts:
            x, dim = (self.inputs["wanted"], 0) if rows.wanted else (self.inputs["tokens"], 1)
            self._counts[rows.wanted] = self.builder.call("sym_size.int", x, dim)
        return self._counts[rows.wanted]

    def call(self, name: str, *args: Any, like: TensorValue) -> TensorValue:
        """A call that the old graph does not have."""
        made: TensorValue = self.builder.call(name, *args, dtype=like.dtype)
        return made

    def wanted(self, rows: TokenRows, count: SymExpr, most: int) -> TokenRows:
        """The rows whose logits are wanted, where the old graph has the last `count` tokens."""
        args = (rows.value, rows.dim, self.inputs["wanted"])
        return TokenRows(self.call("aten.index_select.default", *args, like=rows.value), rows.dim, count, most, True)

    # ---- SymInts

    def _symint(self, call: OpCall, given: Given) -> SymExpr:
        if call.name == "et_vk.select_as_symint.default":
            if isinstance(given["x"], _Number):
                return given["x"].expr
            if call.args["x"] == self.graph.inputs[1]:
                return POSITION
            refuse(call, "reads an integer that is neither the position nor the number of tokens to keep")
        if "dim" in given:
            x = given["x"]
            if not isinstance(x, TokenRows | Fixed):
                refuse(call, f"reads the size of {_described(x)}")
            dim = normal(given["dim"], x.value)
            return x.count if isinstance(x, TokenRows) and dim == x.dim else x.value.dims[dim]
        if not all(isinstance(one, int | Sym) for one in given.values()):
            refuse(call, "computes a SymInt from something else")
        expr: SymExpr = REGISTRY[call.name].evaluate(given)
        return expr

    # ---- attention

    def _cached(self, call: OpCall, given: Given) -> None:
        for name, x in (("k_cache", "k"), ("v_cache", "v")):
            self._write(call, given[name], given[x], given["position"])
        self._paged(call, given, given["k_cache"], given["v_cache"])

    def _update(self, call: OpCall, given: Given) -> None:
        self._write(call, given["cache"], given["x"], given["position"])

    def _attend(self, call: OpCall, given: Given) -> None:
        self._paged(call, given, given["k"], given["v"])

    def _write(self, call: OpCall, cache: Any, x: Any, position: Any) -> None:
        if not isinstance(cache, _Cache) or cache.rows is not None:
            refuse(call, "writes to something that is not a KV cache of its own")
        if not same(position, POSITION):
            refuse(call, "writes to a KV cache at another place than the position")
        cache.rows = self._heads(call, x, "keys or values")

    def _heads(self, call: OpCall, x: Any, what: str) -> TensorValue:
        if not isinstance(x, TokenRows) or x.wanted or x.dim != 1 or len(x.value.dims) != 4 or x.value.dims[0] != 1:
            refuse(call, f"has {what} that are not [1, tokens, heads, depth]")
        return x.value

    def _sinks(self, call: OpCall, sinks: Any) -> TensorValue | None:
        if sinks is not None and not isinstance(sinks, Fixed):
            refuse(call, "has sinks that are no constant")
        return None if sinks is None else sinks.value

    def _paged(self, call: OpCall, given: Given, k: Any, v: Any) -> None:
        coding = [given.get(name) for name in ("k_scale", "k_zero", "v_scale", "v_zero")] if call.name == CODED else []
        caches: list[_Cache] = [cache for cache in (k, v, *coding) if isinstance(cache, _Cache)]
        if len(caches) != len(coding) + 2 or len({id(cache) for cache in caches}) != len(caches):
            refuse(call, "attends to something that is not a pair of KV caches")
        if any(cache.rows is None for cache in caches):
            refuse(call, "attends to a KV cache without this call's keys and values")
        if any(cache.read for cache in caches):
            refuse(call, "attends to a KV cache that another op has attended to")
        if not same(given["position"], POSITION):
            refuse(call, "attends from another place than the position")
        if given.get("mask") is not None or given.get("dropout"):
            refuse(call, "attends with a mask or dropout")
        if not given.get("causal", call.name not in ATTENDS):
            refuse(call, "is not causal: a token would see those after it")
        q, inputs = self._heads(call, given["q"], "queries"), self.inputs
        made = {
            "q": q,
            "k_pool": self._pool(k, k.held.dims[3]),
            "v_pool": self._pool(v, v.held.dims[3]),
            **{name: inputs[name] for name in ("singles", "tiles", "pages", "places")},
            "longest": self._longest,
            "page": self.sizes.page,
            "scale": float(scale_of(given.get("scale"), q.dims[3])),
            "window": given.get("window", 0),
            "softcap": given.get("softcap", 0.0),
            "sinks": self._sinks(call, given.get("sinks")),
            "k": k.rows,
            "v": v.rows,
        }
        if coding:
            made |= self._codings(call, given, caches)
        name = "hightide.paged_coded_attention.default" if coding else "hightide.paged_attention.default"
        out = self.builder.call(name, **made, dtype=self.dtype(call.out))
        for cache in caches:
            cache.read = True
        self.known[call.out] = TokenRows(out, 1, LENGTH, self.positions.most)

    def _codings(self, call: OpCall, given: Given, caches: list[_Cache]) -> dict[str, Any]:
        """What attention on codes is given beside them: scales and zero points, and a pool for those of the caches."""
        k, v, k_scale, k_zero, v_scale, v_zero = caches
        if any(math.prod(cache.held.dims[2:]) % 4 for cache in (k, v)):
            refuse(call, "has rows of codes that are not whole words")
        return {
            "codings": self._pool(k_scale, 4),
            "q_zero": self._heads(call, given["q_zero"], "zero points"),
            "q_scale": self._heads(call, given["q_scale"], "scales"),
            "k_zero": k_zero.rows,
            "k_scale": k_scale.rows,
            "v_zero": v_zero.rows,
            "v_scale": v_scale.rows,
        }

    def _short_conv(self, call: OpCall, given: Given) -> None:
        mixed, cache, weight = given["mixed"], given["cache"], given["weight"]
        if not isinstance(mixed, TokenRows) or mixed.wanted or mixed.dim != 1 or not isinstance(weight, Fixed):
            refuse(call, "does not convolve rows of tokens with a constant")
        if not isinstance(cache, _Cache) or cache.read:
            refuse(call, "writes to something that is not a cache of its own")
        if not same(given["position"], POSITION):
            refuse(call, "writes to a cache at another place than the position")
        lists = [self.inputs[name] for name in ("singles", "tiles", "pages")]
        out = self.builder.call(
            "hightide.paged_conv.default",
            mixed.value,
            weight.value,
            self._pool(cache, cache.held.dims[3]),
            *lists,
            self.sizes.page,
            self.inputs["places"],
            dtype=self.dtype(call.out),
        )
        cache.read = True
        self.known[call.out] = replace(mixed, value=out)

    def _adapted_linear(self, call: OpCall, given: Given) -> None:
        """In the new graph, rows of all sequences have adapters of their own."""
        if not isinstance(given["x"], TokenRows) or given["x"].wanted:
            refuse(call, "does not change rows of tokens")
        rows = {name: Fixed(self.inputs[name]) for name in ADAPTED_INPUTS}
        self._keep(call, RULES["aten.linear.default"](self, call, {**given, **rows}))

    # ---- the end

    def finish(self) -> Graph:
        logits, *ids = self.graph.outputs
        rows = self.known.get(logits)
        if not isinstance(rows, TokenRows) or len(ids) > 1 or any(self.known.get(id) != _Ids(logits) for id in ids):
            raise NotRaggedError("the outputs are not logits by token, and ids chosen from them")
        if not all(cache.read for cache in self.known.values() if isinstance(cache, _Cache)):
            raise NotRaggedError("the program writes to a KV cache that nothing attends to")
        dims, dim = rows.value.dims, rows.dim
        if dim != len(dims) - 2 or any(d != 1 for d in dims[:dim]):
            raise NotRaggedError(f"the logits {list(dims)} are not a row per token")
        if not rows.wanted:
            rows = self.wanted(rows, LENGTH, rows.most)
        value = rows.value
        if dim != 1:
            value = self.call("aten.view_copy.default", value, [1, self.count(rows), dims[-1]], like=value)
        b, old = self.builder, self.graph.values[logits]
        assert isinstance(old, TensorValue)
        b.values[value.id] = replace(value, host_dtype=old.host_dtype)
        how = [self.inputs[name] for name in ("settings", "masks", "masked")]
        return b.graph(value, b.call("hightide.sample.default", value, *how, dtype="int32"))


def _needed(graph: Graph) -> list[OpCall]:
    """The calls whose results somebody reads, or that change something."""
    read, needed = {*graph.outputs}, []
    for call in reversed(graph.calls):
        op = REGISTRY.get(call.name)
        if op is None or op.mutates or read.intersection(output_ids(graph, call)):
            needed.append(call)
            read.update(input_ids(graph, call))
    return needed[::-1]


def _vocabulary(graph: Graph) -> int:
    logits = graph.values[graph.outputs[0]] if graph.outputs else None
    if not isinstance(logits, TensorValue) or not logits.dims:
        raise NotRaggedError("the first output is not logits")
    return logits.dims[-1]


def _flat(given: Any) -> list[Any]:
    return [item for one in given for item in (_flat(one) if isinstance(one, tuple) else [one])]


def _is_zero(value: TensorValue) -> bool:
    blob = value.constant
    return isinstance(blob, Zeros) or (blob is not None and not np.frombuffer(blob.view(), np.uint8).any())


def _described(given: object) -> str:
    names = {_Cache: "a KV cache", _Settings: "the settings", _Ids: "chosen ids", Start: "the position as a tensor"}
    return names.get(type(given), "an input" if isinstance(given, _Number) else "something unknown")
