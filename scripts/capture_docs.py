"""Fills code blocks of the pages in docs/ with files and the output of commands, or checks that they are current.

A block that follows `<!-- file: PATH -->` holds that file. One that follows `<!-- captured: COMMAND -->` holds the
command and what it prints (both streams). With `captured-masked:` a check ignores what differs from run to run:
numbers, the blanks around them, and the adapter's name. With `captured-sample:` it compares only the first line, that
way, for output whose lines change places from run to run. Commands run in the repository's root, where `hightide`
and `python` are this interpreter's.

    python scripts/capture_docs.py [--check] [docs/inspect.md ...]
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = "110"
COMMAND = """-c 'import sys; sys.argv[0] = "hightide"; from hightide.cli import main; main()' """  # as when installed
MARKER = re.compile(
    r"(?P<marker><!-- captured(?P<masked>-masked|-sample)?: (?P<command>[^\n]+?) -->\n)"
    r"```(?P<kind>\w*)\n(?P<text>.*?)```\n",
    re.DOTALL,
)
FILE = re.compile(r"(?P<marker><!-- file: (?P<path>\S+) -->\n)```(?P<kind>\w*)\n(?P<text>.*?)```\n", re.DOTALL)


@dataclass(frozen=True)
class Difference:
    path: Path
    command: str
    diff: str


def update(text: str, run: Callable[[str], str]) -> str:
    """The document with every captured block filled anew."""

    def fill(match: re.Match[str]) -> str:
        return f"{match['marker']}```{match['kind']}\n{shown(match['command'], run(match['command']))}```\n"

    return MARKER.sub(fill, text)


def update_files(text: str) -> str:
    """The document with every file that it quotes as it is now."""
    return FILE.sub(lambda m: f"{m['marker']}```{m['kind']}\n{(ROOT / m['path']).read_text('utf-8')}```\n", text)


def check(path: Path, text: str, run: Callable[[str], str]) -> list[Difference]:
    """The blocks that are not what their commands print now."""
    found = []
    for match in MARKER.finditer(text):
        old, new = match["text"], shown(match["command"], run(match["command"]))
        if match["masked"] == "-sample":  # the command and the line behind it
            old, new = ("\n".join(text.splitlines()[:2]) for text in (old, new))
        if match["masked"]:
            old, new = masked(old), masked(new)
        if old != new:
            diff = difflib.unified_diff(old.splitlines(), new.splitlines(), "docs", "now", lineterm="", n=1)
            found.append(Difference(path, match["command"], "\n".join(diff)))
    return found


def shown(command: str, output: str) -> str:
    lines = [f"$ {command}", *output.splitlines()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def masked(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"llvmpipe \(LLVM [\d.]+, \d+ bits\)", "ADAPTER", text)
    text = re.sub(r"[\d,]*\d(?:\.\d+)?(?: ?[numkMGTµ]?(?:s|B|B/s)\b)?", "#", text)
    return re.sub(r"[ \t]+", " ", text)


def run_command(command: str) -> str:
    """Both streams of a command, in the root, with a `hightide` that is this tree's."""
    with tempfile.TemporaryDirectory() as folder:
        for name, code in (("hightide", COMMAND), ("python", "")):
            script = Path(folder) / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {code}"$@"\n')
            script.chmod(0o755)
        path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
        source = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = os.environ | {"PATH": path, "COLUMNS": WIDTH, "NO_COLOR": "1", "PYTHONPATH": source}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, text=True, **streams)
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, change nothing; exit code 1 if one differs")
    parser.add_argument("files", nargs="*", type=Path, help="documents; all of docs/ if none is named")
    given = parser.parse_args(arguments)
    stale = 0
    for path in given.files or sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text("utf-8")
        if given.check and text != update_files(text):
            stale += 1
            print(f"{path.name}: a file that it quotes has changed")
        if not given.check:
            path.write_text(text := update_files(text), "utf-8")
        if not MARKER.search(text):
            continue
        if given.check:
            for difference in check(path, text, run_command):
                stale += 1
                print(f"{difference.path.name}: `{difference.command}` prints something else now\n{difference.diff}")
        else:
            path.write_text(update(text, run_command), "utf-8")
            print(f"{path.name}: {len(MARKER.findall(text))} blocks", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
