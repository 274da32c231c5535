"""Where tables are printed: a window as wide as the terminal, or a pipe."""

from __future__ import annotations

import os
import sys

from rich.console import Console


def window(plain_width: int) -> Console:
    """As wide as the terminal, or as COLUMNS says; a pipe is `plain_width` wide."""
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if told else plain_width, highlight=False, markup=False)
