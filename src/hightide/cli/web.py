"""`hightide web`: a model as a folder of static files that a browser runs on its own GPU."""

from __future__ import annotations

import webbrowser
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.model import model_file
from hightide.cli.options import MODEL_HELP, Context, note
from hightide.errors import InputError
from hightide.folders import cache_folder
from hightide.option_checks import check_int
from hightide.units import size
from hightide.web.export_file import CHUNK, export_model, export_program


def web(
    file: Annotated[str, typer.Argument(metavar="FILE", help=MODEL_HELP, show_default=False)],
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="The folder to write.", show_default=False)] = None,
    program: Annotated[bool, typer.Option("--program", help="Any .pte, to be called from JavaScript.")] = False,
    method: Annotated[str, typer.Option(help="The method of a program.")] = "forward",
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="S=1..16,T=64", help="Levels of a program. Repeatable. Default: all that there are."),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="The tokenizer, where the file has none.")] = None,
    context: Context = None,
    chunk: Annotated[int, typer.Option(help="Tokens of a prompt that are read at once, at most.")] = CHUNK,
    open_page: Annotated[bool, typer.Option("--open", help="Serve the folder here, and open it in a browser.")] = False,
) -> None:
    """Export a model as a page that runs it in the browser.

    The folder has static files alone, and the model runs on the visitor's
    own GPU. Any web server can host it, over https or on localhost.
    """
    if out is None and not open_page:
        raise InputError("name the folder to write, or --open the page at once")
    check_int("--chunk", chunk, 1)
    path = model_file(file)
    folder = _cached(path) if out is None else out
    if program:
        made = export_program(path, folder, method=method, at=at or (), tell=note)
    else:
        made = export_model(path, folder, tokenizer=tokenizer, context=context, chunk=chunk, tell=note)
    written = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    note(f"{folder}: {made['name']}, {size(written)}")
    if open_page:
        serve(folder)


def _cached(path: Path) -> Path:
    return cache_folder() / "web" / sha256(str(path.resolve()).encode()).hexdigest()[:16]


def serve(folder: Path) -> None:
    """Until Ctrl-C; on localhost a page may use the GPU without https."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://localhost:{server.server_port}/"
        note(f"serving {url}; Ctrl-C ends it")
        webbrowser.open(url)
        server.serve_forever()
