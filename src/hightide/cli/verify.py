"""`hightide verify`: is what the GPU computes right, and if not, which op is it?"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hightide.cli.groups import grouped
from hightide.cli.inputs import collect
from hightide.cli.model import model_file
from hightide.cli.options import MODEL_HELP, Context, Json, Tokenizer
from hightide.cli.progress import bar
from hightide.cli.window import window
from hightide.errors import HightideError, InputError, error_text
from hightide.option_checks import check_int
from hightide.tools.opened_file import OpenedFile, open_file, parse_at
from hightide.tools.verify.level_choice import parse_values
from hightide.tools.verify.part_verifier import VerifySettings
from hightide.tools.verify.results import VerifyReport
from hightide.tools.verify.verify_file import WantedLevels, compare_files, verify_file
from hightide.tools.verify.verify_text import PLAIN_WIDTH, render, verdict
from hightide.tools.word_tables import show

Many = list[str] | None


@dataclass(frozen=True)
class LevelOptions:
    """What is run."""

    level: Annotated[
        Many, typer.Option(metavar="S=1,7,128", help="Values of a live size; all combinations are run. Repeatable.")
    ] = None
    pos: Annotated[str | None, typer.Option(metavar="0,40", help="Values of the position.")] = None
    at: Annotated[Many, typer.Option(metavar="S=17,pos=40", help="One level. Repeatable.")] = None
    prompt: Annotated[str | None, typer.Option(help="Use the tokens of this text instead of random ones.")] = None
    inputs: Annotated[
        Many,
        typer.Option(
            "--input",
            metavar="[NAME=]FILE|JSON",
            help="An input: a .npy, .npz, .bin or .json file, or JSON. Repeatable.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed for the random inputs.")] = 0


@dataclass(frozen=True)
class JudgeOptions:
    """What is compared, and how closely."""

    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0, help="Largest error of one op, as a fraction of its row's largest value. Default: by kind of op."
        ),
    ] = None
    output_tolerance: Annotated[
        float | None, typer.Option(min=0, help="Largest error of the outputs of a whole run.")
    ] = None
    routes: Annotated[bool, typer.Option(help="Also check the routes that this adapter does not take.")] = True
    repeats: Annotated[int, typer.Option(min=1, help="How many runs must give the same bytes.")] = 2


@dataclass(frozen=True)
class OpeningOptions:
    """How a file is opened for the tools."""

    method: Annotated[str, typer.Option(help="The method of a program.")] = "forward"
    device: Annotated[str | None, typer.Option(help="An adapter by index or name.")] = None
    context: Context = None
    tokenizer: Tokenizer = None


@dataclass(frozen=True)
class ShowOptions:
    """How the report is shown."""

    every: Annotated[bool, typer.Option("--ops", help="Show every op at every level.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print one line.")] = False
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as an HTML page.")] = None
    as_json: Json = False


@grouped
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help=MODEL_HELP, show_default=False)],
    *,
    levels: LevelOptions,
    judging: JudgeOptions,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with another file instead of the references.")
    ] = None,
    adapters: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Several adapters, by index or name: each is verified, and compared with the first."
        ),
    ] = None,
    opening: OpeningOptions,
    shown: ShowOptions,
) -> None:
    """Compare the GPU with the NumPy references, op by op.

    Names the first op whose own result is wrong.
    The exit code is 0 if everything agrees, 1 if something is wrong, and 2 if
    the comparison could not be made.
    """
    try:
        check_int("--seed", levels.seed, 0)
        path = model_file(file)
        opened = open_file(path, **asdict(opening))
        tokens = _tokens(opened, levels.prompt)
        where = _where(opened, levels, tokens)
        settings = VerifySettings(levels.seed, **asdict(judging), tokens=tokens)
        with bar(f"verifying {path.name}", "levels") as tell:
            if against is not None:
                other = open_file(model_file(str(against)), **asdict(opening))
                report = compare_files(opened, other, where, settings, tell)
            else:
                names = [name.strip() for name in adapters.split(",")] if adapters else [opening.device]
                report = verify_file(opened, where, settings, names, tell)
    except (HightideError, OSError) as error:
        print(f"hightide: {error_text(error)}", file=sys.stderr)
        raise typer.Exit(2) from None
    _show(report, shown)
    raise typer.Exit(0 if report.passed else 1)


def _tokens(opened: OpenedFile, prompt: str | None) -> tuple[int, ...] | None:
    if prompt is None:
        return None
    if opened.tokenizer is None:
        raise InputError(f"{opened.path.name} has no tokenizer; give one with --tokenizer")
    tokens = tuple(opened.tokenizer.encode(prompt))
    if not tokens:
        raise InputError("the prompt has no tokens")
    return tokens


def _where(opened: OpenedFile, options: LevelOptions, tokens: tuple[int, ...] | None) -> WantedLevels:
    values = dict(parse_values(text) for text in options.level or ())
    if options.pos is not None:
        values["pos"] = parse_values(options.pos, "pos")[1]
    if options.at and values:
        raise InputError("--at names whole levels; give either --at, or --level and --pos")
    exact: list[dict[str, int]] = [parse_at(text) for text in options.at or ()]
    if options.inputs:
        return WantedLevels({}, given=_given(opened, options.inputs, options.seed))
    if tokens and not values and not exact and opened.parts and "S" in opened.parts[0].symbols:
        exact = _levels_of_prompt(opened.parts[0].symbols, len(tokens))
    return WantedLevels(values, exact)


def _given(opened: OpenedFile, inputs: list[str], seed: int) -> list[Any]:
    if len(opened.parts) != 1 or opened.parts[0].name != opened.method:
        raise InputError(f"{opened.path.name} has several parts; --input works only for programs of one part")
    specs = opened.parts[0].specs
    metadata = {} if opened.program is None else opened.program.metadata
    values = collect(specs, inputs, [], seed, metadata)
    return [spec.array(value) for spec, value in zip(specs, values, strict=True)]


def _levels_of_prompt(symbols: dict[str, int], count: int) -> list[dict[str, int]]:
    """The prompt as it would be read: at once, or its last chunk, and its last token alone."""
    most = symbols["S"]
    keep = {"keep": 1} if "keep" in symbols else {}
    if "pos" not in symbols:
        return [{"S": min(count, most)} | keep]
    first = max(0, count - most)
    levels = [{"S": count - first, "pos": first} | keep]
    return levels if count == 1 else [*levels, {"S": 1, "pos": count - 1} | keep]


def _show(report: VerifyReport, options: ShowOptions) -> None:
    if options.html is not None:
        page = Console(record=True, width=160, file=io.StringIO(), highlight=False)
        show(page, render(report, all_ops=True, width=page.width))
        options.html.write_text(page.export_html(), encoding="utf-8")
    if options.as_json:
        print(json.dumps(report.as_json()))
    else:
        console = window(PLAIN_WIDTH)
        show(console, verdict(report) if options.quiet else render(report, options.every, console.width))
