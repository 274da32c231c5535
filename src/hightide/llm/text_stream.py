"""Token ids to text as they come: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence

from hightide.errors import InputError
from hightide.llm.tokenizer import Tokenizer


class TextStream:
    """The pieces that `feed` and at last `flush` return, joined, are `tokenizer.decode` of the ids, cut at the
    first stop string. A piece is held back while it may be part of a character or of a stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str] = (),
        *,
        special: bool | Collection[int] = False,
        continues: bool = False,
    ) -> None:
        """`special` and `continues` as in `Tokenizer.decode`; `special` may also be the special tokens to show."""
        if isinstance(stops, str) or not all(isinstance(stop, str) and stop for stop in stops):
            raise InputError("stop must be a list of strings, none of them empty")
        self.tokenizer = tokenizer
        self.stops = tuple(stops)
        self.shown = frozenset(tokenizer.control if special is True else special or ())
        self.stopped: str | None = None  # the stop string that was found
        self._starts = tokenizer.space_prefix and not continues  # a space before the text is yet to be taken away
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # may be the beginning of a stop string

    def feed(self, token_id: int) -> str:
        piece = self.tokenizer.piece(token_id, made=True)
        if token_id in self.tokenizer.control:
            piece = piece if token_id in self.shown else b""
        elif self._starts:
            piece, self._starts = piece.removeprefix(b" "), False
        return self._release(self._characters.decode(piece))

    def flush(self) -> str:
        """What is still held back; the stream ends here."""
        text = self._release(self._characters.decode(b"", final=True))
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _release(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + text
        # The stop string that is complete first, however the text is split into tokens.
        found = [(at + len(stop), at, stop) for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.stopped = min(found)
            self._held = ""
            return text[:at]
        cut = len(text) - max((overlap(text, stop) for stop in self.stops), default=0)
        self._held = text[cut:]
        return text[:cut]


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text begin the stop string."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
