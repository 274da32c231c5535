"""`hightide kernels`: what the compiler of a GPU that need not be there makes of a model's kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.model import model_file
from hightide.cli.options import MODEL_HELP, Context, Json, Route, note
from hightide.cli.window import window
from hightide.llm.model import default_chunk
from hightide.ops.choices import parse_routes
from hightide.tools.kernels.judged import judge_file
from hightide.tools.kernels.kernel_page import make_page
from hightide.tools.kernels.kernel_tables import as_data, print_judged
from hightide.tools.kernels.target_gpus import DEFAULT_TARGET, GPUS, target_gpu
from hightide.tools.opened_file import open_file, parse_at

PLAIN_WIDTH = 160  # of a pipe


def kernels(
    file: Annotated[str, typer.Argument(metavar="FILE", help=MODEL_HELP, show_default=False)],
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"A GPU: {', '.join(GPUS)}. Repeatable. Default: {DEFAULT_TARGET}."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="S=128,pos=0", help="A level. Repeatable. Default: prefill, then decode."),
    ] = None,
    method: Annotated[str, typer.Option(help="The method of a program.")] = "forward",
    context: Context = None,
    route: Route = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page with bars and the code of main loops.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile a model's kernels for a GPU that need not be there, and predict their time on it.

    Registers, spills, shared memory, waves, the instructions of the main
    loop, and what bounds each dispatch. Needs Mesa's drivers and the
    package vulkan.
    """
    gpus = [target_gpu(name) for name in target or [DEFAULT_TARGET]]
    levels, routes = [parse_at(text) for text in at or ()], parse_routes(route or ())
    chunk = max(default_chunk(gpu.traits) for gpu in gpus)
    opened = open_file(model_file(file), method=method, device="cpu", context=context, chunk=chunk)
    judged = [judge_file(opened, gpu, levels, routes) for gpu in gpus]
    if html is not None:
        html.write_text(make_page(judged), "utf-8")
        note(f"{html}: open it in a browser")
    if as_json:
        print(json.dumps([as_data(one) for one in judged]))
        return
    console = window(PLAIN_WIDTH)
    for n, one in enumerate(judged):
        if n:
            console.print()
        print_judged(one, console)
