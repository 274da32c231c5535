"""What was found out about kernels as a page that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources

from jinja2 import Environment

from hightide.tools.kernels.judged import KernelReport
from hightide.tools.kernels.kernel_tables import HEADS, PREDICTED, facts_text, totals_text


def make_page(reports: Sequence[KernelReport]) -> str:
    """The reports of one file, for one GPU or several."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"facts": facts_text, "totals": totals_text, "parts": asdict}
    template = environment.from_string(
        resources.files("hightide.tools.kernels").joinpath("page.html").read_text("utf-8")
    )
    heads = [head.removesuffix(" >") for head in HEADS]
    return template.render(file=reports[0].file, reports=reports, predicted=PREDICTED, heads=heads)
