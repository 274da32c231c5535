"""What a model thinks before it answers: text between think tags at the start of its output."""

from __future__ import annotations

from hightide.llm.text_stream import overlap

TAGS = {"<think>": "</think>", "[THINK]": "[/THINK]"}


def opened_by(prompt: str) -> str | None:
    """The tag that the prompt ends with, so that the output begins with thoughts."""
    return next((tag for tag in TAGS if prompt.rstrip().endswith(tag)), None)


class ReasoningSplitter:
    """Splits the pieces of an output into thoughts and the answer; newlines next to the tags belong to neither."""

    def __init__(self, opened: str | None = None) -> None:
        """`opened`: the tag that the prompt ends with, if any."""
        self._closing = TAGS.get(opened or "")
        self._undecided = self._closing is None  # whether the output begins with a tag
        self._trims = self._closing is not None  # newlines before the next text
        self._held = ""

    @property
    def thinking(self) -> bool:
        return self._closing is not None

    def feed(self, text: str) -> tuple[str, str]:
        """More of the thoughts, and more of the answer."""
        self._held += text
        if self._undecided:
            start = self._held.lstrip()
            if not start or any(tag.startswith(start) and tag != start for tag in TAGS):
                return "", ""
            self._undecided = False
            if tag := next((tag for tag in TAGS if start.startswith(tag)), None):
                self._closing, self._held, self._trims = TAGS[tag], start[len(tag) :], True
        if self._closing is None:
            return "", self._release(len(self._held))
        at = self._held.find(self._closing)
        if at < 0:
            certain = self._held[: len(self._held) - overlap(self._held, self._closing)]
            return self._release(len(certain.rstrip("\n"))), ""  # newlines may be those before the closing tag
        thoughts = self._release(at).rstrip("\n")
        self._held, self._closing, self._trims = self._held[len(self._closing) :], None, True
        return thoughts, self._release(len(self._held))

    def flush(self) -> tuple[str, str]:
        """What is still held back; the output ends here."""
        rest = self._release(len(self._held))
        return (rest, "") if self._closing is not None else ("", rest)

    def _release(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        if self._trims:
            text = text.lstrip("\n")
            self._trims = not text
        return text
