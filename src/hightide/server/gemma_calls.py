"""Calls as Gemma writes them: `<|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hightide.server.xml_calls import schema_properties, typed

_CALL = re.compile(r"<\|tool_call>\s*call:([^\s{]+)\s*(\{.*\})\s*<tool_call\|>", re.DOTALL)
_QUOTE = '<|"|>'
_BARE = re.compile(r"[^,:{}\[\]]*")
MAX_DEPTH = 32


def parse_gemma_call(text: str, schemas: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The tool's name and the arguments, in the types that its schema has; None if it is not a call of a tool."""
    call = _CALL.fullmatch(text)
    if call is None or call[1] not in schemas:
        return None
    reader = _Reader(call[2])
    try:
        arguments = reader.value(schemas[call[1]])
    except _Malformed:
        return None
    return (call[1], arguments) if reader.at_end and isinstance(arguments, dict) else None


class _Malformed(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    @property
    def at_end(self) -> bool:
        return not self._text[self._at :].strip()

    def value(self, schema: Any) -> Any:
        if self._takes(_QUOTE):
            return self._quoted()
        for opening, read in (("{", self._object), ("[", self._array)):
            if self._takes(opening):
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    raise _Malformed
                value = read(schema)
                self._depth -= 1
                return value
        return typed(self._bare(), schema)

    def _object(self, schema: Any) -> dict[str, Any]:
        properties, fields = schema_properties(schema), {}
        while not self._takes("}"):
            key = self._quoted() if self._takes(_QUOTE) else self._bare()
            self._require(":")
            fields[key] = self.value(properties.get(key))
            if not self._takes(","):
                self._require("}")
                break
        return fields

    def _array(self, schema: Any) -> list[Any]:
        items: list[Any] = []
        kind = schema.get("items") if isinstance(schema, Mapping) else None
        while not self._takes("]"):
            items.append(self.value(kind))
            if not self._takes(","):
                self._require("]")
                break
        return items

    def _quoted(self) -> str:
        end = self._text.find(_QUOTE, self._at)
        if end < 0:
            raise _Malformed
        text, self._at = self._text[self._at : end], end + len(_QUOTE)
        return text

    def _bare(self) -> str:
        found = _BARE.match(self._text, self._at)
        if found is None or not found[0].strip():
            raise _Malformed
        self._at = found.end()
        return found[0].strip()

    def _takes(self, token: str) -> bool:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _require(self, token: str) -> None:
        if not self._takes(token):
            raise _Malformed
