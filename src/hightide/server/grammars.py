"""The one place that knows how answers are constrained: what a request asks for, as `Engine.submit` takes it."""

from __future__ import annotations

from typing import Any

import hightide
from hightide.errors import InputError, UnsupportedError

KINDS = ("json_object", "json_schema", "regex", "lark", "choices")

GrammarFields = dict[str, Any]  # kind, source: plain data that goes to the worker


def grammar_fields(kind: str, source: Any = None) -> GrammarFields:
    """A grammar to be made by the worker; UnsupportedError if this version of hightide cannot."""
    assert kind in KINDS
    if getattr(hightide, "Grammar", None) is None:
        raise UnsupportedError("answers cannot be constrained by a grammar, a schema or required tools yet")
    return {"kind": kind, "source": source}


def make_grammar(fields: GrammarFields) -> Any:
    """The `hightide.Grammar` of these fields; InputError if it is not one."""
    kinds = getattr(hightide, "Grammar", None)
    if kinds is None or fields["kind"] not in KINDS:
        raise InputError("this grammar is of an unknown kind")
    make = getattr(kinds, fields["kind"])
    return make() if fields["source"] is None else make(fields["source"])
