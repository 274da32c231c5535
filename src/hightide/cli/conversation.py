"""A conversation with a model: its messages, and how it is continued, saved and loaded."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hightide.cli.progress import bar
from hightide.errors import HightideError, InputError, ProgramError, UnsupportedError
from hightide.folders import replacing
from hightide.llm.answer import Stats
from hightide.llm.chat_template import check_message
from hightide.llm.llm import LLM
from hightide.media.parts import MediaPart


class Interrupted(Exception):
    """The user wants no more of the answer."""


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Ctrl-C raises Interrupted meanwhile, where it would only be noted."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.getsignal(signal.SIGINT)
    noted = before not in (None, signal.default_int_handler)
    if not noted or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass
class Conversation:
    llm: LLM
    options: dict[str, Any]  # of `LLM.stream`
    messages: list[dict[str, Any]] = field(default_factory=list)
    last: Stats | None = None  # of the newest answer
    shown: list[MediaPart] = field(default_factory=list)  # with the next message
    forgotten: int = 0  # messages dropped to make room, by on_full "shift"

    @property
    def system(self) -> str | None:
        """The system message."""
        first = self.messages[0] if self.messages else {}
        return first["content"] if first.get("role") == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        rest = self.messages[self.system is not None :]
        self.messages = rest if text is None else [{"role": "system", "content": text}, *rest]

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = self.messages[: self.system is not None]
        self.llm.reset()

    def answer(self, text: str, stopped: Callable[[], bool] = lambda: False) -> Generator[str, None, str]:
        """The answer to a message, in pieces; the generator's value is why it ended.

        `stopped` is asked between calls of the model, where the session is whole. What was said until then
        stays in the conversation; a message that got no answer does not.
        """
        before, said = list(self.messages), ""
        self.messages.append({"role": "user", "content": [*self.shown, text] if self.shown else text})
        try:
            with closing(self._stream(stopped)) as pieces:
                for piece in pieces:
                    said += piece
                    yield piece
                    if stopped():
                        raise Interrupted
            return self._reason
        except Interrupted:
            return "interrupted"
        finally:
            if said:
                self.shown = []
                self.messages.append({"role": "assistant", "content": said})
            else:
                self.messages = before

    def _stream(self, stopped: Callable[[], bool]) -> Generator[str, None, None]:
        with bar("reading the prompt", "tokens") as tell:

            def progress(done: int, total: int) -> None:
                if stopped():
                    raise Interrupted
                if tell:
                    tell(done, total)

            stream = self.llm.stream(self._ids(), progress=progress, **self.options)
            self.last = stream.stats
            piece = next(stream, None)
        with stream:
            while piece is not None:
                yield piece.text
                piece = next(stream, None)
            self._reason = stream.finish_reason

    def _ids(self) -> list[int]:
        """The prompt. One that is too long loses its oldest turns, or is refused."""
        context = self.llm.context
        ids, self.forgotten = self._encode(self.messages), 0
        if self.options.get("on_full") == "shift" and len(ids) > context:
            kept = self.messages[: self.system is not None]
            rest = self.messages[len(kept) :]
            while len(ids) > context * 3 // 4 and len(rest) > 1:  # a quarter for the answer
                del rest[: next((n for n, m in enumerate(rest) if n and m["role"] == "user"), len(rest) - 1)]
                ids = self._encode(kept + rest)
            self.forgotten = len(self.messages) - len(kept) - len(rest)
            self.messages = kept + rest
        if len(ids) > context:
            raise InputError(
                f"the conversation has {len(ids)} tokens, but the context holds {context}; /reset starts a new one,"
                " --context N makes room for more, and --on-full shift drops the oldest turns"
            )
        return ids

    def _encode(self, messages: list[dict[str, Any]]) -> list[int]:
        """Token ids. A template may take seconds, but holds nothing: Ctrl-C ends it at once."""
        with raised_interrupts():
            return self.llm.encode(messages)

    # ---- files

    def save(self, path: Path) -> list[Path]:
        """The messages as JSON, and beside them the keys and values, so that nothing has to be read again."""
        if any(not isinstance(message["content"], str) for message in self.messages):
            raise UnsupportedError("a conversation with images or audio cannot be saved")
        text, state = _files(path)
        saved = {"model": self.llm.path.name, "messages": self.messages}
        with replacing(text) as file:
            file.write((json.dumps(saved, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
        try:
            self.llm.save_state(state)
        except UnsupportedError:
            return [text]
        return [text, state]

    def load(self, path: Path) -> str | None:
        """Continues a saved conversation; if its state cannot be used, returns why (the messages are read again)."""
        text, state = _files(path)
        try:
            saved = json.loads(text.read_text("utf-8"))
            messages = [check_message(m, f"message {n + 1}") for n, m in enumerate(saved["messages"])]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InputError) as error:
            raise ProgramError(f"{text} is not a saved conversation: {error}") from None
        self.messages = messages
        self.llm.reset()
        if not state.is_file():
            return f"there is no {state.name}"
        try:
            self.llm.load_state(state)
        except HightideError as error:
            return str(error)
        return None


def _files(path: Path) -> tuple[Path, Path]:
    """(messages, state) of a conversation: `talk`, `talk.json` and `talk.npz` name the same."""
    path = path.expanduser()
    base = path.with_suffix("") if path.suffix in (".json", ".npz") else path
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".npz")
