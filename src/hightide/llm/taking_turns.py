"""A model that cannot be made ragged: its sequences take turns, each with its own state over the same weights.

What the step loop takes for a page is then a place for one whole sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import TensorValue
from hightide.llm.batch import Batch, Rows
from hightide.llm.decoder import StepResult
from hightide.llm.media import Media, MediaSlots
from hightide.llm.state_file import StateLayout
from hightide.ops import REGISTRY
from hightide.ops.sampling.sampling import sample
from hightide.planning.levels import InputSpec
from hightide.pte.program import Method
from hightide.runtime.session import Session

# Ops that write the keys and values of a token where its position is, and nothing else.
CACHE_UPDATES = {
    REGISTRY[name] for name in ("sdpa_with_kv_cache.default", "update_cache.default", "llama.update_cache.default")
}


class ReadingPlace(Protocol):
    """A model with the state of one sequence, which is read from its start on."""

    def logits(self, tokens: Sequence[int], position: int, keep: int) -> np.ndarray:
        """The logits of the last `keep` tokens, or of more."""

    def sibling(self: Place) -> Place:
        """Another sequence on the same weights."""

    def reset(self) -> None: ...

    def recover(self) -> None: ...

    def device_bytes(self) -> dict[str, int]: ...

    def close(self) -> None: ...


class SequencePlace(ReadingPlace, Protocol):
    """One that goes on from any position it has been at."""

    def read(self, length: int) -> list[np.ndarray]: ...

    def write(self, arrays: Sequence[np.ndarray]) -> None: ...

    def layout(self, length: int) -> StateLayout: ...


Place = TypeVar("Place", bound=ReadingPlace)


def goes_back(graph: Graph, context: int) -> bool:
    """Whether all state are KV caches with a row for each position, so that a later run may start at an earlier one."""
    for call in graph.calls:
        op = REGISTRY[call.name]
        for name in op.mutates:
            value = graph.values[call.args[name]]
            whole = isinstance(value, TensorValue) and len(value.dims) == 4 and value.dims[1] >= context
            if op not in CACHE_UPDATES or not whole:
                return False
    return True


def graph_in_turns(
    graph: Graph, session: Session, media: Media | None = None, *, keep: int, **sizes: int
) -> TurnsDecoder:
    """Of a graph with a KV cache and its session; `keep` and the sizes are the decoder's."""
    place = GraphPlace(session, media)
    if goes_back(graph, sizes["context"]):
        return TurnsDecoder(place, keep=keep, device=session.name, media=media, **sizes)
    return TurnsDecoder(RereadPlace(place, sizes["rows"]), keep=1, device=session.name, media=media, **sizes)


class TurnsDecoder:
    """See `Decoder`; a step has ended when it is launched."""

    whole = False

    def __init__(
        self,
        place: SequencePlace,
        *,
        context: int,
        sequences: int,
        rows: int,
        keep: int,
        vocab: int,
        device: str,
        media: Media | None = None,
    ):
        self.context = self.page = context
        self.pages, self.max_rows, self.max_keep = sequences, rows, keep
        self.max_wanted = sequences * keep
        self.vocab_size, self.device = vocab, device
        self.max_media, self.media = (0 if media is None else 1), media
        self._places: dict[int, SequencePlace] = {0: place}
        self._chosen = np.zeros(0, np.int64)

    def _place(self, page: int) -> SequencePlace:
        if page not in self._places:
            self._places[page] = self._places[0].sibling()
        return self._places[page]

    def launch(self, batch: Batch) -> Any:
        made = [self._run(rows) for rows in batch.rows]
        logits = np.concatenate([rows for rows, _ in made]) if made else np.zeros((0, self.vocab_size))
        self._chosen = np.array([id for _, ids in made for id in ids], np.int64)
        return StepResult(self._chosen, logits if batch.logits else None)

    def _run(self, rows: Rows) -> tuple[np.ndarray, list[int]]:
        tokens = [max(0, int(self._chosen[-1 - token])) if token < 0 else token for token in rows.tokens]
        logits = self._place(rows.pages[0]).logits(tokens, rows.position, rows.wanted).reshape(-1, self.vocab_size)
        wanted = logits[-rows.wanted or len(logits) :]
        settings = rows.settings[: rows.wanted]
        masks: Sequence[np.ndarray | None] = rows.masks if rows.masks else [None] * rows.wanted
        ways = zip(wanted, settings, masks, strict=True)
        return wanted, [sample(row.astype(np.float64), how, mask) for row, how, mask in ways]

    def collect(self, ticket: Any) -> StepResult:
        step: StepResult = ticket
        return step

    def abandon(self) -> None:
        """A step has ended when it is launched."""

    def recover(self) -> None:
        for place in self._places.values():
            place.recover()
        if self.media is not None:
            self.media.recover()

    def first_odd(self, batch: Batch) -> OpCall | None:
        return None

    def copy_pages(self, pairs: Sequence[tuple[int, int]]) -> None:
        for source, to in pairs:
            self._place(to).write(self._place(source).read(self.context))

    def read_pages(self, pages: Sequence[int], length: int) -> list[np.ndarray]:
        if not length:
            return self.state_layout(0).empty()
        return self._place(pages[0]).read(length)

    def write_pages(self, pages: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
        self._place(pages[0]).write(arrays)

    def state_layout(self, length: int) -> StateLayout:
        return self._places[0].layout(length)

    def device_bytes(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for place in self._places.values():
            total.update(place.device_bytes())
        total.update({} if self.media is None else self.media.device_bytes())
        return dict(total)

    def close(self) -> None:
        for place in self._places.values():
            place.close()
        if self.media is not None:
            self.media.close()


class RereadPlace:
    """A sequence whose state cannot go back, such as that of a recurrent layer: it is cleared, and the tokens before
    are read again. What is saved of it are its tokens."""

    def __init__(self, place: ReadingPlace, rows: int) -> None:
        """`rows`: the most tokens of a call."""
        self._place, self._rows = place, rows
        self._tokens: list[int] = []
        self._held = 0  # tokens that the state is of; -1: it is not known

    def logits(self, tokens: Sequence[int], position: int, keep: int) -> np.ndarray:
        again, first = (position != self._held), 0
        self._tokens[position:], self._held = tokens, -1
        if again:
            self._place.reset()
            while first < position:
                chunk = self._tokens[first : min(first + self._rows, position)]
                self._place.logits(chunk, first, 0)
                first += len(chunk)
        logits = self._place.logits(tokens, position, keep)
        self._held = position + len(tokens)
        return logits

    def sibling(self) -> RereadPlace:
        return RereadPlace(self._place.sibling(), self._rows)

    def layout(self, length: int) -> StateLayout:
        return StateLayout(((1, length),), "i")

    def read(self, length: int) -> list[np.ndarray]:
        return [np.array([self._tokens[:length]], np.int64)]

    def write(self, arrays: Sequence[np.ndarray]) -> None:
        self._tokens, self._held = arrays[0][0].tolist(), -1

    def reset(self) -> None:
        self._tokens, self._held = [], -1

    def recover(self) -> None:
        self._held = -1
        self._place.recover()

    def device_bytes(self) -> dict[str, int]:
        return self._place.device_bytes()

    def close(self) -> None:
        self._place.close()


class GraphPlace:
    """A graph of (tokens, input_pos) -> logits with a KV cache; of (tokens, input_pos, media) with rows of images."""

    def __init__(self, session: Session, media: Media | None = None) -> None:
        self.session = session
        self._media, self._slots = media, None if media is None else MediaSlots(media, session)

    def logits(self, tokens: Sequence[int], position: int, keep: int) -> np.ndarray:
        specs = self.session.specs
        placed = tokens if self._slots is None else self._slots.placed(tokens)
        given: list[Any] = [np.array([placed], specs[0].dtype), positions(specs[1], position, len(tokens))]
        given += [] if self._slots is None else [self._slots.fed]
        want = (0,) if keep else ()
        outputs = self.session.collect(self.session.launch(given, want))
        return outputs[0] if outputs else np.zeros((0, 1), np.float32)

    def sibling(self) -> GraphPlace:
        return GraphPlace(self.session.sibling(), self._media)

    def layout(self, length: int) -> StateLayout:
        return StateLayout.of_caches(self.session, length)

    def read(self, length: int) -> list[np.ndarray]:
        return [array[:, :length].copy() for array in self.session.read_state()]

    def write(self, arrays: Sequence[np.ndarray]) -> None:
        whole = self.session.read_state()
        for array, part in zip(whole, arrays, strict=True):
            array[:, : part.shape[1]] = part
        self.session.write_state(whole)

    def reset(self) -> None:
        self.session.reset()

    def recover(self) -> None:
        self.session.recover()
        if self._slots is not None:
            self._slots.clear()

    def device_bytes(self) -> dict[str, int]:
        return self.session.device_bytes()

    def close(self) -> None:
        self.session.close()


class MethodPlace:
    """A program of several parts, called whole; or one without a KV cache, called with all tokens so far."""

    def __init__(self, method: Method, cached: bool, make: Callable[[], Method]) -> None:
        """`make` gives another method on the same weights."""
        self.method, self.cached, self._make = method, cached, make
        self._history: list[int] = []

    def logits(self, tokens: Sequence[int], position: int, keep: int) -> np.ndarray:
        self._history[position:] = tokens
        if self.cached:
            return self.method(np.array([tokens]), np.array([position]))[0]
        if not keep:
            return np.zeros((0, 1), np.float32)
        return self.method(np.array([self._history]))[0]

    def sibling(self) -> MethodPlace:
        return MethodPlace(self._make(), self.cached, self._make)

    def layout(self, length: int) -> StateLayout:
        return StateLayout(((1, length),), "i")

    def read(self, length: int) -> list[np.ndarray]:
        return [np.array([self._history[:length]], np.int64)]

    def write(self, arrays: Sequence[np.ndarray]) -> None:
        self._history = arrays[0][0].tolist()

    def reset(self) -> None:
        self.method.reset()

    recover = reset

    def device_bytes(self) -> dict[str, int]:
        return self.method.device_bytes()

    def close(self) -> None:
        self.method.close()


class EmbeddingPlace:
    """A program of `token_embedding` and `text_decoder` in several parts, called whole; embeddings pass the host."""

    def __init__(self, embedding: Method, decoder: Method, media: Media) -> None:
        self._embedding, self._decoder, self._media = embedding, decoder, media

    def logits(self, tokens: Sequence[int], position: int, keep: int) -> np.ndarray:
        text = [min(token, self._media.vocabulary - 1) for token in tokens]
        embedded = self._embedding(np.array([text]))[0]
        for n, token in enumerate(tokens):
            if token >= self._media.vocabulary:
                medium = self._media.found(token)
                embedded[0, n] = self._media.encode(medium)[token - medium.ids.start]
        return self._decoder(embedded, positions(self._decoder.inputs[1], position, len(tokens)))[0]

    def sibling(self) -> EmbeddingPlace:
        return EmbeddingPlace(self._embedding, self._decoder.sibling(), self._media)

    def reset(self) -> None:
        self._decoder.reset()

    def recover(self) -> None:
        self._embedding.reset()
        self._decoder.reset()

    def device_bytes(self) -> dict[str, int]:
        total = Counter(self._embedding.device_bytes())
        total.update(self._decoder.device_bytes())
        return dict(total)

    def close(self) -> None:
        self._embedding.close()
        self._decoder.close()


def positions(spec: InputSpec, first: int, count: int) -> np.ndarray:
    """The position of the first token, or of each, as the program takes it."""
    return np.arange(first, first + (count if spec.dims[0] > 1 else 1)).astype(spec.dtype)
