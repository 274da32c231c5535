"""`hightide verify`: is what the GPU computes right, and if not, which op is it?"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hightide.cli.options import DEFAULT, MODEL_HELP, Context, Json, Tokenizer
from hightide.cli.progress import bar
from hightide.errors import HightideError, InputError

if TYPE_CHECKING:
    from hightide.tools.opened_file import OpenedFile
    from hightide.tools.verify.results import VerifyReport
    from hightide.tools.verify.verify_file import WantedLevels

Many = list[str] | None


def verify(
    file: Annotated[str, typer.Argument(help=MODEL_HELP, show_default=False)],
    level: Annotated[
        Many, typer.Option(metavar="S=1,7,128", help="Values of something that varies; all combinations are run.")
    ] = None,
    pos: Annotated[str | None, typer.Option(metavar="0,40", help="The same for the position.")] = None,
    at: Annotated[Many, typer.Option(metavar="S=17,pos=40", help="One level; may be given several times.")] = None,
    method: Annotated[str, typer.Option(help="Which method of a program.")] = "forward",
    prompt: Annotated[str | None, typer.Option(help="Real tokens instead of random ones.")] = None,
    inputs: Annotated[
        Many, typer.Option("--input", metavar="[NAME=]FILE|JSON", help="An input: .npy, .npz, .bin, .json or JSON.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="What an op's own error may be, of its row's largest value; by default by its kind."),
    ] = None,
    output_tolerance: Annotated[
        float | None, typer.Option(min=0, help="The same for the outputs of a whole run.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with another file instead of the references.")
    ] = None,
    adapters: Annotated[
        str | None, typer.Option(metavar="A,B", help="Several adapters, by index or name: each, and beside the first.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="An adapter by index or name.")] = None,
    routes: Annotated[bool, typer.Option(help="Also check the routes that are not taken here.")] = True,
    repeats: Annotated[int, typer.Option(min=1, help="Runs that must give the same bytes.")] = 2,
    context: Context = None,
    tokenizer: Tokenizer = None,
    every: Annotated[bool, typer.Option("--ops", help="Show every op at every level.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print one line.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the GPU with the references, op by op, and name the op that is wrong.

    Exit code 0: all is right; 1: something is wrong; 2: it could not be found out.
    """
    from hightide.tools.opened_file import open_file
    from hightide.tools.verify.part_verifier import VerifySettings
    from hightide.tools.verify.verify_file import compare_files, verify_file

    try:
        path = _path(file)
        options: Any = {"method": method, "device": device, "context": context, "tokenizer": tokenizer}
        opened = open_file(path, **options)
        tokens = _tokens(opened, prompt)
        where = _where(opened, level or [], pos, at or [], inputs or [], seed, tokens)
        settings = VerifySettings(seed, tolerance, output_tolerance, routes, repeats, tokens)
        with bar(f"verifying {path.name}", "levels") as tell:
            if against is not None:
                other = open_file(
                    _path(str(against)), method=method, device=device, context=context, tokenizer=tokenizer
                )
                report = compare_files(opened, other, where, settings, tell)
            else:
                names = [name.strip() for name in adapters.split(",")] if adapters else [device]
                report = verify_file(opened, where, settings, names, tell)
    except (HightideError, OSError) as error:
        print(f"hightide: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    _show(report, every, quiet, as_json, html)
    raise typer.Exit(0 if report.passed else 1)


def _path(name: str) -> Path:
    from hightide.llm.default_model import default_model

    path = default_model() if name == DEFAULT else Path(name)
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    return path


def _tokens(opened: OpenedFile, prompt: str | None) -> tuple[int, ...] | None:
    if prompt is None:
        return None
    if opened.tokenizer is None:
        raise InputError(f"{opened.path.name} has no tokenizer: give one with --tokenizer")
    tokens = tuple(opened.tokenizer.encode(prompt))
    if not tokens:
        raise InputError("the prompt has no tokens")
    return tokens


def _where(
    opened: OpenedFile,
    levels: list[str],
    pos: str | None,
    at: list[str],
    inputs: list[str],
    seed: int,
    tokens: tuple[int, ...] | None,
) -> WantedLevels:
    from hightide.tools.opened_file import parse_at
    from hightide.tools.verify.level_choice import parse_values
    from hightide.tools.verify.verify_file import WantedLevels

    values = dict(parse_values(text) for text in levels)
    if pos is not None:
        values["pos"] = parse_values(pos, "pos")[1]
    if at and values:
        raise InputError("--at names whole levels: give either that, or --level and --pos")
    exact: list[dict[str, int]] = [parse_at(text) for text in at]
    if inputs:
        return WantedLevels({}, given=_given(opened, inputs, seed))
    if tokens and not values and not exact and opened.parts and "S" in opened.parts[0].symbols:
        exact = _levels_of_prompt(opened.parts[0].symbols, len(tokens))
    return WantedLevels(values, exact)


def _given(opened: OpenedFile, inputs: list[str], seed: int) -> list[Any]:
    from hightide.cli.inputs import collect

    if len(opened.parts) != 1 or opened.parts[0].name != opened.method:
        raise InputError(f"{opened.path.name} has several parts: inputs can be given to a program of one")
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


def _show(report: VerifyReport, every: bool, quiet: bool, as_json: bool, html: Path | None) -> None:
    from rich.console import Console

    from hightide.tools.verify.verify_text import render, verdict

    if html is not None:
        page = Console(record=True, width=160, file=io.StringIO(), highlight=False)
        page.print(render(report, all_ops=True, width=page.width))
        html.write_text(page.export_html(), encoding="utf-8")
    if as_json:
        print(json.dumps(report.as_json()))
    else:
        console = Console(soft_wrap=False, highlight=False)
        console.print(verdict(report) if quiet else render(report, every, console.width))
