"""A profile as a page that needs no network, and as HTML for a notebook."""

from __future__ import annotations

import html
import json
import statistics
from importlib import resources
from string import Template
from typing import Any

from hightide.tools.profile.profile_data import LevelProfile, ProfileData
from hightide.tools.profile.profile_tables import (
    busy_text,
    duration,
    finding_text,
    host_text,
    limits_text,
    short,
    totals_text,
    where_text,
)


def page(profile: ProfileData) -> str:
    """The whole page: its script and its data are in it."""
    folder = resources.files("hightide.tools.profile")
    data = {
        **profile.as_json(),
        "limits_text": limits_text(profile),
        "busy": busy_text(profile),
        "where": where_text(profile),
    }
    for shown, level in zip(data["levels"], profile.levels, strict=True):
        shown |= {
            "name": level.name,
            "finding": finding_text(level),
            "totals": totals_text(level),
            "host": host_text(level),
            "run": _median_run(level),
        }
    return Template(folder.joinpath("page.html").read_text("utf-8")).safe_substitute(
        TITLE=html.escape(f"{profile.subject}: profile"),
        DATA=json.dumps(data).replace("<", "\\u003c"),  # no text may end the script element
        SCRIPT=folder.joinpath("page.js").read_text("utf-8"),
    )


def fragment(profile: ProfileData) -> str:
    """Tables with bars, without a script: notebooks may not run any."""
    parts = [
        f"<p><b>{html.escape(profile.subject)}</b> on {html.escape(where_text(profile))}; "
        f"timed by {profile.timing.value}<br>limits: {html.escape(limits_text(profile))}</p>"
    ]
    for level in profile.levels:
        parts.append(f"<p><b>{html.escape(level.name)}</b>: {html.escape(finding_text(level))}</p>")
        parts.append(_table(level))
        parts.append(f"<p>{html.escape(totals_text(level))}<br>{html.escape(host_text(level))}</p>")
    return "".join(parts)


def _table(level: LevelProfile) -> str:
    titles = ("op", "route", "time", "share", "calls", "GB/s", "GFLOP/s", "of limit")
    rows = []
    for group in level.by_route():
        share = group.seconds / level.gpu_seconds if level.gpu_seconds else 0.0
        bar = f"background:linear-gradient(to right,rgba(80,130,220,.3) {share:.1%},transparent {share:.1%})"
        cells = (
            html.escape(short(group.name)),
            html.escape(group.route),
            duration(group.seconds),
            f"{share:.1%}",
            str(group.calls),
            f"{group.gb_s:.2f}",
            f"{group.gflop_s:.2f}",
            f"{group.of_limit:.0%} {group.binding}",
        )
        first, *others = cells
        rows.append(f"<tr><td style='{bar}'>{first}</td>" + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _median_run(level: LevelProfile) -> dict[str, Any]:
    """The run of median length, in ns from its begin."""
    middle = statistics.median_low(run.seconds for run in level.runs)
    run = next(run for run in level.runs if run.seconds == middle)
    return {
        "length": run.end - run.begin,
        "spans": [{"name": s.name, "begin": s.begin - run.begin, "end": s.end - run.begin} for s in run.spans],
        "dispatches": [[begin - run.begin, end - run.begin] for begin, end in run.dispatches],
    }
