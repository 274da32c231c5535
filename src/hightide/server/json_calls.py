"""Calls of tools in JSON, found while it is written: objects with a name and arguments."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from hightide.llm.text_stream import overlap
from hightide.server.deltas import CallArguments, CallBegun, Delta, Text

Schemas = Mapping[str, Any]  # the JSON schema of the arguments, by the tool's name

FENCE = re.compile(r"```[a-z_]*\s*")
# An object of a call up to its arguments, which can be passed on from there.
_HEAD = re.compile(
    r'\{\s*(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,'
    r'\s*"(?:arguments|parameters)"\s*:\s*'
)


class CallBlock(ABC):
    """A part of an output that may be calls."""

    def __init__(self, schemas: Schemas, index: int) -> None:
        self.schemas = schemas
        self.index = index  # of the next call

    @abstractmethod
    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        """More of it. What it makes of that, and the text behind it once it has ended."""

    def call(self, name: str, arguments: Any) -> list[Delta]:
        """A call that is complete."""
        self.index += 1
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return [CallBegun(self.index - 1, name), CallArguments(self.index - 1, text)]


class JsonCalls(CallBlock):
    """Objects with a name and arguments, alone or in an array, perhaps between markers."""

    def __init__(self, schemas: Schemas, index: int, opening: str, closing: str = "", fenced: bool = False) -> None:
        super().__init__(schemas, index)
        self._unread = ""
        self._raw = ""  # of this block, as long as it may turn out to be text
        self._opening, self._closing = opening, closing
        self._fenced = fenced
        self._object: _CallObject | None = None
        self._found = False

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        self._unread += text
        if not self._found:
            self._raw += text
        if self._opening:
            self._unread, self._opening = self._unread.removeprefix(self._opening), ""
        deltas: list[Delta] = []
        while True:
            if self._object is None:
                self._unread = self._unread.lstrip(" \t\r\n[],;")
                if self._fenced:
                    fence = FENCE.match(self._unread)
                    if self._unread and "```".startswith(self._unread[:3]) and not fence and not final:
                        return deltas, None
                    self._unread = self._unread[fence.end() :] if fence else self._unread
                if not self._unread:
                    return deltas, self._ending(deltas) if final else None
                if not self._unread.startswith("{"):
                    return self._end(deltas, final)
                self._object = _CallObject(self.schemas, self.index)
            found, rest = self._object.read(self._unread, final)
            self._unread = rest or ""
            if any(isinstance(delta, CallBegun) for delta in found):
                self._found, self.index = True, self.index + 1
            elif found and isinstance(found[0], Text) and not self._found:
                # Not a call: all of the block so far is text.
                return [*deltas, Text(self._raw[: len(self._raw) - len(self._unread)])], self._unread
            deltas += found
            if rest is None:
                return deltas, None
            self._object = None

    def _end(self, deltas: list[Delta], final: bool) -> tuple[list[Delta], str | None]:
        """Behind the last object."""
        if not final and overlap(self._unread, self._closing) == len(self._unread):
            return deltas, None
        if self._closing and self._unread.startswith(self._closing):
            rest = self._unread[len(self._closing) :]
            return (deltas, rest) if self._found else ([*deltas, Text(self._raw[: len(self._raw) - len(rest)])], rest)
        if self._found:
            return deltas, self._unread
        return [*deltas, Text(self._raw[: len(self._raw) - len(self._unread)])], self._unread

    def _ending(self, deltas: list[Delta]) -> str:
        """At the end of the output: what was opened and has no call is text."""
        if not self._found and self._raw:
            deltas.append(Text(self._raw))
        return ""


class _CallObject(CallBlock):
    """An object with a name and arguments. If the name comes first, the arguments are passed on as they come."""

    def __init__(self, schemas: Schemas, index: int) -> None:
        super().__init__(schemas, index)
        self._raw, self._depth = "", _Depth()
        self._sent = -1  # how much of `raw` was passed on, once the name is known
        self._arguments_end: int | None = None

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        deltas: list[Delta] = []
        for n, character in enumerate(text):
            before = self._depth.depth
            depth = self._depth.after(character)
            self._raw += character
            if before == 1 and depth == 2 and character == "{" and self._sent < 0:
                deltas += self._begin()
            elif before == 2 and depth == 1 and self._sent >= 0 and self._arguments_end is None:
                self._arguments_end = len(self._raw)
            if depth == 0:
                return [*deltas, *self._pass_on(), *self._whole()], text[n + 1 :]
        deltas += self._pass_on()
        if final:
            return [*deltas, *([] if self._sent >= 0 else [Text(self._raw)])], ""
        return deltas, None

    def _begin(self) -> list[Delta]:
        found = _HEAD.fullmatch(self._raw, 0, len(self._raw) - 1)
        name = _loads(found[1]) if found else None
        if not isinstance(name, str) or name not in self.schemas:
            return []
        self._sent = len(self._raw) - 1
        return [CallBegun(self.index, name)]

    def _pass_on(self) -> list[Delta]:
        if self._sent < 0:
            return []
        piece = self._raw[self._sent : self._arguments_end]
        self._sent += len(piece)
        return [CallArguments(self.index, piece)] if piece else []

    def _whole(self) -> list[Delta]:
        """The object is complete. If nothing was passed on: a call after all, or text."""
        if self._sent >= 0:
            return []
        fields = _loads(self._raw)
        if isinstance(fields, dict) and isinstance(fields.get("function"), dict):
            fields = fields["function"]
        if isinstance(fields, dict) and isinstance(fields.get("name"), str) and fields["name"] in self.schemas:
            given = fields.get("arguments", fields.get("parameters"))
            given = fields.get("parameters") if given is None else given
            given = _loads(given) if isinstance(given, str) else {} if given is None else given
            if isinstance(given, dict):
                return self.call(fields["name"], given)
        return [Text(self._raw)]


class JsonArguments(CallBlock):
    """The arguments alone; the name is known."""

    def __init__(self, schemas: Schemas, index: int, name: str) -> None:
        super().__init__(schemas, index)
        self._name, self._begun, self._depth = name, False, _Depth()

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        deltas: list[Delta] = []
        if not self._begun:
            self._begun, self.index = True, self.index + 1
            deltas.append(CallBegun(self.index - 1, self._name))
        end = next((n + 1 for n, character in enumerate(text) if self._depth.after(character) == 0), None)
        piece = text[:end]
        if piece:
            deltas.append(CallArguments(self.index - 1, piece))
        return deltas, "" if end is None and final else None if end is None else text[end:]


class _Depth:
    """How deep in objects and arrays a JSON text is."""

    def __init__(self) -> None:
        self.depth = 0
        self._in_string = self._escaped = False

    def after(self, character: str) -> int:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self._in_string = False
            return max(self.depth, 1)
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self.depth += 1
        elif character in "}]":
            self.depth -= 1
            return self.depth
        return max(self.depth, 1)


def _loads(text: str) -> Any:
    """None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
