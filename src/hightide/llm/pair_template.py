"""How a query and a document are put to a decoder that ranks: one text, with special tokens around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hightide.errors import ProgramError

_SPECIAL = re.compile(r"<\|[^<>|]*\|>")
_PLACE = re.compile(r"\{(query|document)\}")


@dataclass(frozen=True)
class PairTemplate:
    """Special tokens are only before and behind the text: a document that has their names does not become them."""

    before: str
    text: str  # with {query} and {document}
    behind: str

    @classmethod
    def parsed(cls, template: object, model: Path) -> PairTemplate:
        """From the template that a model has in its fields."""
        places = list(_PLACE.finditer(template)) if isinstance(template, str) else []
        if not isinstance(template, str) or {place[1] for place in places} != {"query", "document"}:
            raise ProgramError(f"{model}: the template for ranking is no text with {{query}} and {{document}}")
        special = list(_SPECIAL.finditer(template))
        first, last = places[0].start(), places[-1].end()
        start = max((mark.end() for mark in special if mark.end() <= first), default=0)
        end = min((mark.start() for mark in special if mark.start() >= last), default=len(template))
        return cls(template[:start], template[start:end], template[end:])

    def filled(self, query: str, document: str) -> str:
        given = {"query": query, "document": document}
        return _PLACE.sub(lambda place: given[place[1]], self.text)
