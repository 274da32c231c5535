"""Calls as Qwen3-Coder writes them: `<function=name><parameter=key>value</parameter></function>`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_FUNCTION = re.compile(r"<function=([^>\s]+)\s*>(.*)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)\s*>(.*?)</parameter>\s*(?=<parameter=|\Z)", re.DOTALL)


def parse_xml_call(text: str, schemas: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The tool's name and the arguments, in the types that its schema has; None if it is not a call of a tool."""
    function = _FUNCTION.search(text)
    if function is None or function[1] not in schemas:
        return None
    properties = schema_properties(schemas[function[1]])
    given = _PARAMETER.findall(function[2].strip())
    return function[1], {key: typed(_trimmed(value), properties.get(key)) for key, value in given}


def schema_properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def typed(text: str, schema: Any) -> Any:
    """A value written without quotes, in the type that its schema has; the text itself if it does not fit."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if kind == "integer":
        return int(text) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text) else text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value


def _trimmed(value: str) -> str:
    """Without the newline behind the opening tag and the one before the closing tag."""
    return value.removeprefix("\n").removesuffix("\n")
