"""The one place that knows how answers are constrained: what a request asks for, as `Engine.submit` takes it."""

from __future__ import annotations

from typing import Any

from hightide import Grammar

KINDS = ("json_object", "json_schema", "regex", "lark", "choice")  # class methods of `Grammar`

GrammarFields = dict[str, Any]  # kind, source: plain data that goes to the worker


def grammar_fields(kind: str, source: Any = None) -> GrammarFields:
    """A grammar to be made by the worker."""
    assert kind in KINDS
    return {"kind": kind, "source": source}


def make_grammar(fields: GrammarFields) -> Grammar:
    """The grammar of these fields; InputError if it is not one. May take seconds."""
    make = getattr(Grammar, fields["kind"])
    return make() if fields["source"] is None else make(fields["source"])
