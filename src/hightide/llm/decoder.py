"""A language model on a session: tokens at a position in, the next ids (and logits) out."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from hightide.errors import InputError, TooLargeError, UnsupportedError, reading
from hightide.formats.gguf import read_gguf
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import TensorValue
from hightide.llm.context_room import what_fits
from hightide.llm.models import build_graph
from hightide.llm.models.model_builder import DYNAMIC, INPUTS, MAX_KEEP, choose_context
from hightide.llm.state_file import StateLayout
from hightide.ops.choices import check_routes
from hightide.ops.sampling.sampling import SETTINGS, sample
from hightide.pte.program import Method, Program
from hightide.runtime.build import build_session, choose_device, named_device
from hightide.runtime.room import NoRoomError
from hightide.runtime.session import Fed, Last, Session

Progress = Callable[[int, int], None]  # (done, in all)
GREEDY = np.zeros(SETTINGS, np.float32)


@dataclass(frozen=True)
class StepResult:
    """What a call gave: ids [keep], and logits [keep, vocabulary] where they were asked for.

    An id of -1 stands for logits that are not numbers.
    """

    ids: np.ndarray
    logits: np.ndarray | None


Tokens: TypeAlias = Sequence[int] | None  # None: the id that the call before chose


class Decoder(Protocol):
    """What the engine needs of a model. Calls are launched and collected in order."""

    context: int
    max_tokens: int  # of one call
    max_keep: int  # tokens of one call whose ids can be had
    vocab_size: int
    device: str

    def launch(
        self, tokens: Tokens, position: int, keep: int = 1, settings: np.ndarray = GREEDY, logits: bool = False
    ) -> Any:
        """Start a call. No tokens: the id that the call before chose, which may not have arrived yet."""

    def collect(self, ticket: Any) -> StepResult: ...

    def abandon(self) -> None:
        """Forget the calls that are under way."""

    def recover(self) -> None:
        """Go on after a device was lost; the state is as at the start."""

    def first_odd(self, tokens: Sequence[int], position: int) -> OpCall | None:
        """Make a call again, and give the first op whose output has NaN or +infinity, if that can be told."""

    def device_bytes(self) -> dict[str, int]: ...

    def state_layout(self, length: int) -> StateLayout:
        """What `save` gives for the first `length` positions."""

    def save(self, length: int) -> list[np.ndarray]:
        """The state of the first `length` positions."""

    def restore(self, saved: Sequence[np.ndarray], length: int) -> None:
        """Put back what `save` gave."""

    def close(self) -> None:
        """Free what it holds on its device."""


class GraphDecoder:
    """A model that is one graph with a KV cache and a choice of ids at its end."""

    def __init__(self, session: Session, *, context: int, max_keep: int, takes_keep: bool) -> None:
        self.session = session
        self.context, self.takes_keep = context, takes_keep
        self.device = session.name
        self.max_tokens = session.specs[0].dims[1]
        self.max_keep = min(max_keep, self.max_tokens)
        logits = session.graph.values[session.graph.outputs[0]]
        assert isinstance(logits, TensorValue)
        self.vocab_size = logits.dims[-1]

    def launch(
        self, tokens: Tokens, position: int, keep: int = 1, settings: np.ndarray = GREEDY, logits: bool = False
    ) -> Any:
        want = () if keep == 0 else (0, 1) if logits else (1,)
        given = self._inputs(tokens, position, keep, settings)
        return keep, self.session.launch(given, want, feed={1: Last(0)} if keep == 1 else {})

    def collect(self, ticket: Any) -> StepResult:
        keep, launched = ticket
        outputs = self.session.collect(launched)
        if not outputs:
            return StepResult(np.zeros(0, np.int64), None)
        ids = outputs[-1].reshape(-1)[-keep:]
        return StepResult(ids, outputs[0].reshape(-1, self.vocab_size)[-keep:] if len(outputs) == 2 else None)

    def abandon(self) -> None:
        self.session.abandon()

    def recover(self) -> None:
        self.session.recover()

    def first_odd(self, tokens: Sequence[int], position: int) -> OpCall | None:
        return self.session.first_odd(self._inputs(tokens, position, 1, GREEDY))

    def _inputs(self, tokens: Tokens, position: int, keep: int, settings: np.ndarray) -> list[Any]:
        given: list[Any] = [Fed((1, 1)) if tokens is None else _row(tokens), np.array([position])]
        if self.takes_keep:
            given.append(np.array([keep]))
        given.append(settings)
        specs = self.session.specs
        return [g if isinstance(g, Fed) else g.astype(s.dtype) for g, s in zip(given, specs, strict=True)]

    def device_bytes(self) -> dict[str, int]:
        return self.session.device_bytes()

    def state_layout(self, length: int) -> StateLayout:
        whole = [self.session.graph.values[id] for id in sorted(self.session.planner.aliases.state)]
        caches = [value.dims for value in whole if isinstance(value, TensorValue)]
        return StateLayout(tuple((*dims[:1], length, *dims[2:]) for dims in caches))

    def save(self, length: int) -> list[np.ndarray]:
        return [array[:, :length].copy() for array in self.session.read_state()]

    def restore(self, saved: Sequence[np.ndarray], length: int) -> None:
        _check_state(saved, self.state_layout(length), length, self.context)
        whole = self.session.read_state()
        for array, part in zip(whole, saved, strict=True):
            array[:, :length] = part
        self.session.write_state(whole)

    def close(self) -> None:
        self.session.close()


class MethodDecoder:
    """A program of several parts, or without a KV cache: called whole, ids chosen on the host."""

    def __init__(self, method: Method, *, context: int, cached: bool) -> None:
        self.method, self.cached = method, cached
        self.device = method.sessions[0].name if method.sessions else "NumPy"
        self.context = context
        self.max_tokens = method.inputs[0].dims[1]
        self.max_keep = 1
        self.vocab_size = method.outputs[0].dims[-1]
        self._history: list[int] = []
        self._chosen = 0

    def launch(
        self, tokens: Tokens, position: int, keep: int = 1, settings: np.ndarray = GREEDY, logits: bool = False
    ) -> Any:
        new = [max(0, self._chosen)] if tokens is None else list(tokens)
        self._history[position:] = new
        if keep == 0 and not self.cached:
            return StepResult(np.zeros(0, np.int64), None)
        if self.cached:
            (out,) = self.method(_row(new), np.array([position]))
        else:
            (out,) = self.method(_row(self._history))
        last = out.reshape(-1, self.vocab_size)[-1]
        self._chosen = sample(last.astype(np.float64), *settings.astype(np.float64).tolist())
        return StepResult(np.array([self._chosen]), last[None] if logits else None)

    def collect(self, ticket: Any) -> StepResult:
        step: StepResult = ticket
        return step

    def abandon(self) -> None:
        """A call has ended when it is launched."""

    def recover(self) -> None:
        self.method.reset()

    def first_odd(self, tokens: Sequence[int], position: int) -> OpCall | None:
        return None

    def device_bytes(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for session in self.method.sessions:
            total.update(session.device_bytes())
        return dict(total)

    def state_layout(self, length: int) -> StateLayout:
        if self.cached:
            raise UnsupportedError("a program of several parts cannot save or restore its state")
        return StateLayout(((length,),), "i")

    def save(self, length: int) -> list[np.ndarray]:
        self.state_layout(length)
        return [np.array(self._history[:length], np.int64)]

    def restore(self, saved: Sequence[np.ndarray], length: int) -> None:
        _check_state(saved, self.state_layout(length), length, self.context)
        self._history = saved[0].tolist()

    def close(self) -> None:
        self.method.close()


def _check_state(saved: Sequence[np.ndarray], layout: StateLayout, length: int, context: int) -> None:
    fits = tuple(array.shape for array in saved) == layout.dims and length <= context
    if not fits or any(array.dtype.kind != layout.kind for array in saved):
        raise InputError("the saved state is from another model, or from a longer context")


def _row(tokens: Sequence[int]) -> np.ndarray:
    return np.array([tokens], np.int64)


@dataclass(frozen=True)
class Placement:
    """Where a model runs, and how it is held there."""

    device: str | int | None = None  # as in `hightide.load`
    kv: str | None = None  # "f16", "f32", or None for halves on a GPU that has them
    routes: Mapping[str, str] | None = None  # forced, by the name of the choice
    progress: Progress | None = None  # called with (bytes uploaded, bytes in all)


def open_gguf(
    path: str | os.PathLike[str], context: int | None, max_tokens: int, placement: Placement
) -> tuple[Decoder, dict[str, Any]]:
    """A GGUF model whose calls take up to `max_tokens`, and the metadata that its tokenizer is in."""
    routes = check_routes(placement.routes or {})
    with reading(path):
        file = read_gguf(path)
        context = choose_context(file, context)
    gpu = choose_device(named_device(placement.device))

    def built(most: int) -> Session:
        with reading(path):
            graph = build_graph(file, context, min(most, context))
        return build_session(graph, gpu, DYNAMIC, INPUTS, placement.progress, placement.kv, routes)

    try:
        session = built(max_tokens)
    except NoRoomError as error:
        fewer = max(1, max_tokens // 4)  # at a time: smaller activations
        try:
            session = built(fewer)
        except NoRoomError:
            halves = gpu is not None and gpu.traits.f16 and not (placement.kv == "f16" or gpu.traits.half_caches)
            fits = what_fits(error, context, halves)
            raise TooLargeError(f"{file.path.name} with a context of {context}: {error}; {fits}") from error
        warnings.warn(f"{error}; prompts are read in chunks of {fewer} tokens, not {max_tokens}", stacklevel=3)
    return GraphDecoder(session, context=context, max_keep=MAX_KEEP, takes_keep=True), file.metadata


def open_pte(program: Program, context: int | None, placement: Placement) -> Decoder:
    """A program whose method `forward` takes tokens, and a position if it has a KV cache.

    A `context` uses that much of the program's own. Its device and routes are the program's.
    """
    name = program.file.path.name
    info = program.methods.get("forward")
    if info is None or not info.inputs or len(info.inputs) > 2 or len(info.inputs[0].dims) != 2:
        raise UnsupportedError(f"{name} is not a language model: it has no method forward(tokens, input_pos)")
    cached = len(info.inputs) == 2
    longest = info.inputs[0].dims[1]
    most = int(program.metadata.get("get_max_context_len", program.metadata.get("get_max_seq_len", longest)))
    most = most if cached else longest
    context = most if context is None else context
    if not 1 <= context <= most:
        raise InputError(f"{name} has a context of {most} tokens; it cannot use {context}")
    graph = program.single_graph("forward")
    if graph is None or not cached:
        if placement.kv == "f16":
            raise UnsupportedError("KV caches in f16 need a program that is one graph with a cache")
        return MethodDecoder(program.method("forward"), context=context, cached=cached)
    dynamic = [*(spec.dynamic for spec in info.inputs), False]
    names = ["tokens", "input_pos", "settings"]
    session = build_session(
        with_choice(graph), program.gpu, dynamic, names, placement.progress, placement.kv, program.routes
    )
    every = len(info.outputs[0].dims) == 3  # logits of every token, not of the last one only
    return GraphDecoder(session, context=context, max_keep=longest if every else 1, takes_keep=False)


def with_choice(graph: Graph) -> Graph:
    """The graph with one more input, the settings, and one more output, the ids chosen from its logits."""
    logits = graph.values[graph.outputs[0]]
    assert isinstance(logits, TensorValue)
    settings = TensorValue(len(graph.values), (SETTINGS,), "float32", "float32")
    ids = TensorValue(len(graph.values) + 1, logits.dims[:-1], "int32", "int32")
    call = OpCall(len(graph.calls), "hightide.sample.default", {"logits": logits.id, "settings": settings.id}, ids.id)
    return replace(
        graph,
        values=(*graph.values, settings, ids),
        calls=(*graph.calls, call),
        inputs=(*graph.inputs, settings.id),
        outputs=(logits.id, ids.id),
    )
