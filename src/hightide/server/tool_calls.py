"""Calls of tools in what a model writes, found while it writes.

The formats: `<tool_call>` with JSON (Hermes, Qwen) or with `<function=...>` (Qwen3-Coder), `[TOOL_CALLS]` (Mistral),
`<|python_tag|>` and plain JSON (Llama 3), `<|tool_call>call:` (Gemma). What turns out to be no call of a tool that the
request has is text. Arguments in JSON arrive piece by piece, others when they are complete.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from hightide.llm.text_stream import overlap
from hightide.server.deltas import CallArguments, CallBegun, Delta, Text
from hightide.server.gemma_calls import parse_gemma_call
from hightide.server.xml_calls import parse_xml_call

Schemas = Mapping[str, Any]  # the JSON schema of the arguments, by the tool's name

MARKERS = ("<tool_call>", "<function=", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call>")
_FENCE = re.compile(r"```[a-z_]*\s*")
# An object of a call up to its arguments, which can be passed on from there.
_HEAD = re.compile(
    r'\{\s*(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,'
    r'\s*"(?:arguments|parameters)"\s*:\s*'
)


class ToolCallParser:
    """Pieces of an output in, deltas out."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._held = ""
        self._block: _Block | None = None  # what is being read: a part of the output that may be calls
        self._calls = 0
        self._at_start = True  # nothing but white space so far

    def feed(self, text: str) -> list[Delta]:
        self._held += text
        return self._advance(final=False)

    def flush(self) -> list[Delta]:
        """What is still held back; the output ends here."""
        return self._advance(final=True)

    def _advance(self, final: bool) -> list[Delta]:
        deltas: list[Delta] = []
        while True:
            if self._block is None:
                deltas += self._text(final)
                if self._block is None:
                    return deltas
            text, self._held = self._held, ""
            found, rest = self._block.read(text, final)
            deltas += found
            if rest is None:
                return deltas
            self._calls, self._block, self._held = self._block.index, None, rest

    def _text(self, final: bool) -> list[Delta]:
        """Text up to where a call may begin."""
        if self._at_start:
            fence = _FENCE.match(self._held.lstrip())
            start = self._held.lstrip()[fence.end() if fence else 0 :]
            if start[:1] in ("{", "["):
                if not final and any(marker.startswith(start) for marker in MARKERS):  # "[TOOL"
                    return []
                if not any(start.startswith(marker) for marker in MARKERS):
                    self._begin(_JsonCalls(self._schemas, self._calls, "", fenced=fence is not None))
                    return []
            elif not final and (not start or "```".startswith(start[:3])):
                return []
        found = [(at, marker) for marker in MARKERS if (at := self._held.find(marker)) >= 0]
        if found:
            at, marker = min(found)
            before, self._held = self._held[:at], self._held[at:]
            self._begin(_block_for(marker, self._schemas, self._calls))
            return self._shown(before, final=True)
        kept = 0 if final else max(overlap(self._held, marker) for marker in MARKERS)
        text = self._held[: len(self._held) - kept]
        if self._calls and not text.strip():  # white space behind a call is shown only if more text follows
            if final:
                self._held = ""
            return []
        self._held = self._held[len(text) :]
        return self._shown(text, final)

    def _shown(self, text: str, final: bool) -> list[Delta]:
        if not text or (self._calls and final and not text.strip()):
            return []
        self._at_start = False
        return [Text(text)]

    def _begin(self, block: _Block) -> None:
        self._at_start = False
        self._block = block


class _Block(ABC):
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


def _block_for(marker: str, schemas: Schemas, index: int) -> _Block:
    if marker == "<tool_call>":
        return _TaggedCall(schemas, index)
    if marker == "<function=":
        return _WholeCall(schemas, index, "</function>", parse_xml_call)
    if marker == "<|tool_call>":
        return _WholeCall(schemas, index, "<tool_call|>", parse_gemma_call)
    if marker == "[TOOL_CALLS]":
        return _MistralCalls(schemas, index)
    return _JsonCalls(schemas, index, "<|python_tag|>")


class _TaggedCall(_Block):
    """`<tool_call>`, behind which are JSON or `<function=`."""

    def __init__(self, schemas: Schemas, index: int) -> None:
        super().__init__(schemas, index)
        self._raw = ""
        self._inner: _Block | None = None

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        if self._inner is None:
            self._raw += text
            body = self._raw[len("<tool_call>") :].lstrip()
            if not body and not final:
                return [], None
            if body.startswith("<function=") or (body and "<function=".startswith(body) and not final):
                self._inner = _WholeCall(self.schemas, self.index, "</tool_call>", parse_xml_call)
            else:
                self._inner = _JsonCalls(self.schemas, self.index, "<tool_call>", closing="</tool_call>")
            text = self._raw
        deltas, rest = self._inner.read(text, final)
        self.index = self._inner.index
        return deltas, rest


class _WholeCall(_Block):
    """A call that is understood when it is complete."""

    def __init__(self, schemas: Schemas, index: int, closing: str, parse: Any) -> None:
        super().__init__(schemas, index)
        self._closing, self._parse = closing, parse
        self._raw = ""

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        self._raw += text
        at = self._raw.find(self._closing)
        if at < 0 and not final:
            return [], None
        end = len(self._raw) if at < 0 else at + len(self._closing)
        found = self._parse(self._raw[:end], self.schemas)
        return ([Text(self._raw[:end])] if found is None else self.call(*found)), self._raw[end:]


class _MistralCalls(_Block):
    """`[TOOL_CALLS]`, behind which are JSON, or a name, perhaps `[ARGS]`, and arguments in JSON."""

    def __init__(self, schemas: Schemas, index: int) -> None:
        super().__init__(schemas, index)
        self._raw = ""
        self._inner: _Block | None = None

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        if self._inner is None:
            self._raw += text
            body = self._raw[len("[TOOL_CALLS]") :].lstrip()
            if body[:1] in ("[", "{"):
                self._inner = _JsonCalls(self.schemas, self.index, "[TOOL_CALLS]")
                text = self._raw
            elif "{" in body:
                head = self._raw[: self._raw.index("{")]
                name = re.split(r"\[(?:ARGS|CALL_ID)\]", head[len("[TOOL_CALLS]") :])[0].strip()
                if name not in self.schemas:
                    return [Text(head)], self._raw[len(head) :]
                self._inner = _JsonArguments(self.schemas, self.index, name)
                text = self._raw[len(head) :]
            elif final:
                return [Text(self._raw)], ""
            else:
                return [], None
        deltas, rest = self._inner.read(text, final)
        self.index = self._inner.index
        return deltas, rest


class _JsonArguments(_Block):
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


class _JsonCalls(_Block):
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
                    fence = _FENCE.match(self._unread)
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
        return [*deltas, Text(self._raw)], ""

    def _ending(self, deltas: list[Delta]) -> str:
        """At the end of the output: what was opened and has no call is text."""
        if not self._found and self._raw:
            deltas.append(Text(self._raw))
        return ""


class _CallObject(_Block):
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
