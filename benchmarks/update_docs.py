"""Put the tables of benchmarks/results/bench.json's run into docs/performance.md: `python benchmarks/update_docs.py`.

The page has places `<!-- bench: TITLE -->` ... `<!-- end -->`; what is between them is replaced by the table of
that title in bench.md, or by what the run says of its machine (`<!-- bench: machine -->`).
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
PLACE = re.compile(r"(<!-- bench: (?P<title>[^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    report = (HERE / "results" / "bench.md").read_text("utf-8")
    parts = sections(report)
    page = PAGE.read_text("utf-8")
    absent = [match["title"] for match in PLACE.finditer(page) if match["title"] not in parts]
    PAGE.write_text(PLACE.sub(lambda match: filled(match, parts), page), "utf-8")
    for plot in (HERE / "results").glob("*.png"):
        shutil.copy(plot, PAGE.parent / f"bench-{plot.name}")
    if absent:
        print(f"left as they were, since this run has no such table: {'; '.join(absent)}", file=sys.stderr)


def sections(report: str) -> dict[str, str]:
    """The report's text by heading; before the first one it is about the machine."""
    machine, *rest = report.split("\n## ")
    lines = [line for line in machine.splitlines()[1:] if not line.startswith("![")]
    found = {"machine": "\n".join(lines).strip()}
    for part in rest:
        title, text = part.split("\n", 1)
        found[title.strip()] = text.strip()
    return found


def filled(match: re.Match[str], parts: dict[str, str]) -> str:
    text = parts.get(match["title"])
    return match[0] if text is None else f"{match[1]}\n{text}\n\n{match[3]}"


if __name__ == "__main__":
    main()
