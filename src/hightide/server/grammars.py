"""The one place that knows how answers are constrained: what a request asks for, as `Engine.submit` takes it."""

from __future__ import annotations

from typing import Any

import hightide
from hightide.errors import UnsupportedError

KINDS = ("json_object", "json_schema", "regex", "lark", "choice")  # class methods of `hightide.Grammar`

GrammarFields = dict[str, Any]  # kind, source: plain data that goes to the worker


def can_constrain() -> bool:
    """Whether this version of hightide has grammars, and answers that go on where another engine stopped."""
    return hasattr(hightide, "Grammar")


def grammar_fields(kind: str, source: Any = None) -> GrammarFields:
    """A grammar to be made by the worker."""
    assert kind in KINDS
    if not can_constrain():
        raise UnsupportedError("answers cannot be constrained by a grammar, a schema or required tools yet")
    return {"kind": kind, "source": source}


def make_grammar(fields: GrammarFields) -> Any:
    """The `hightide.Grammar` of these fields; InputError if it is not one. May take seconds."""
    make = getattr(getattr(hightide, "Grammar"), fields["kind"])  # noqa: B009 (not in every version)
    return make() if fields["source"] is None else make(fields["source"])
