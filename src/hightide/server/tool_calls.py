"""Calls of tools in what a model writes, found while it writes.

The formats: `<tool_call>` with JSON (Hermes, Qwen) or with `<function=...>` (Qwen3-Coder), `[TOOL_CALLS]` (Mistral),
`<|python_tag|>` and plain JSON (Llama 3), `<|tool_call>call:` (Gemma). What turns out to be no call of a tool that the
request has is text. Arguments in JSON arrive piece by piece, others when they are complete.
"""

from __future__ import annotations

import re
from typing import Any

from hightide.llm.text_stream import overlap
from hightide.server.deltas import Delta, Text
from hightide.server.gemma_calls import parse_gemma_call
from hightide.server.json_calls import FENCE, CallBlock, JsonArguments, JsonCalls, Schemas
from hightide.server.xml_calls import parse_xml_call

MARKERS = ("<tool_call>", "<function=", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call>")


class ToolCallParser:
    """Pieces of an output in, deltas out."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._held = ""
        self._block: CallBlock | None = None  # what is being read: a part of the output that may be calls
        self._calls = 0
        self._at_start = True  # nothing but white space so far
        self._behind_call = False  # there, white space is shown only if text follows it

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
            if found:
                self._behind_call = not isinstance(found[-1], Text)
            if rest is None:
                return deltas
            self._calls, self._block, self._held = self._block.index, None, rest

    def _text(self, final: bool) -> list[Delta]:
        """Text up to where a call may begin."""
        if self._at_start:
            fence = FENCE.match(self._held.lstrip())
            start = self._held.lstrip()[fence.end() if fence else 0 :]
            if start[:1] in ("{", "["):
                if not final and any(marker.startswith(start) for marker in MARKERS):  # "[TOOL"
                    return []
                if not any(start.startswith(marker) for marker in MARKERS):
                    self._begin(JsonCalls(self._schemas, self._calls, "", fenced=fence is not None))
                    return []
            elif not final and (not start or "```".startswith(start[:3])):
                return []
        found = [(at, marker) for marker in MARKERS if (at := self._held.find(marker)) >= 0]
        if found:
            at, marker = min(found)
            before, self._held = self._held[:at], self._held[at:]
            self._begin(_block_for(marker, self._schemas, self._calls))
            return self._shown(before)
        kept = 0 if final else max(overlap(self._held, marker) for marker in MARKERS)
        text = self._held[: len(self._held) - kept]
        if self._behind_call and not text.strip() and not final:
            return []
        self._held = self._held[len(text) :]
        return self._shown(text)

    def _shown(self, text: str) -> list[Delta]:
        if not text or (self._behind_call and not text.strip()):
            return []
        self._at_start = self._behind_call = False
        return [Text(text)]

    def _begin(self, block: CallBlock) -> None:
        self._at_start = False
        self._block = block


def _block_for(marker: str, schemas: Schemas, index: int) -> CallBlock:
    if marker == "<tool_call>":
        return _TaggedCall(schemas, index)
    if marker == "<function=":
        return _WholeCall(schemas, index, "</function>", parse_xml_call)
    if marker == "<|tool_call>":
        return _WholeCall(schemas, index, "<tool_call|>", parse_gemma_call)
    if marker == "[TOOL_CALLS]":
        return _MistralCalls(schemas, index)
    return JsonCalls(schemas, index, "<|python_tag|>")


class _CallBehind(CallBlock):
    """What follows its marker says how the call is written: another block reads it then."""

    def __init__(self, schemas: Schemas, index: int) -> None:
        super().__init__(schemas, index)
        self._raw = ""
        self._inner: CallBlock | None = None

    def _read_inner(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        assert self._inner is not None
        deltas, rest = self._inner.read(text, final)
        self.index = self._inner.index
        return deltas, rest


class _TaggedCall(_CallBehind):
    """`<tool_call>`, behind which are JSON or `<function=`."""

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        if self._inner is None:
            self._raw += text
            body = self._raw[len("<tool_call>") :].lstrip()
            if not final and body != "<function=" and "<function=".startswith(body):  # nothing yet, or "<func"
                return [], None
            if body.startswith("<function="):
                self._inner = _WholeCall(self.schemas, self.index, "</tool_call>", parse_xml_call)
            else:
                self._inner = JsonCalls(self.schemas, self.index, "<tool_call>", closing="</tool_call>")
            text = self._raw
        return self._read_inner(text, final)


class _WholeCall(CallBlock):
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


class _MistralCalls(_CallBehind):
    """`[TOOL_CALLS]`, behind which are JSON, or a name, perhaps `[ARGS]`, and arguments in JSON."""

    def read(self, text: str, final: bool) -> tuple[list[Delta], str | None]:
        if self._inner is None:
            self._raw += text
            body = self._raw[len("[TOOL_CALLS]") :].lstrip()
            if body[:1] in ("[", "{"):
                self._inner = JsonCalls(self.schemas, self.index, "[TOOL_CALLS]")
                text = self._raw
            elif "{" in body:
                head = self._raw[: self._raw.index("{")]
                name = re.split(r"\[(?:ARGS|CALL_ID)\]", head[len("[TOOL_CALLS]") :])[0].strip()
                if name not in self.schemas:
                    return [Text(head)], self._raw[len(head) :]
                self._inner = JsonArguments(self.schemas, self.index, name)
                text = self._raw[len(head) :]
            elif final:
                return [Text(self._raw)], ""
            else:
                return [], None
        return self._read_inner(text, final)
