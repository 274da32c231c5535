"""A profile as callers get it: it prints as tables, shows itself in notebooks, and becomes a page or a trace."""

from __future__ import annotations

from typing import Any

from hightide.tools.profile.profile_data import ProfileData
from hightide.tools.profile.profile_page import fragment, page
from hightide.tools.profile.profile_tables import as_text
from hightide.tools.profile.trace import trace


class Profile(ProfileData):
    """What was measured, with all the forms that it can be shown in."""

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return fragment(self)

    def html(self) -> str:
        """One page with plots, which needs no network."""
        return page(self)

    def trace(self) -> dict[str, Any]:
        """A trace for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        return trace(self)
