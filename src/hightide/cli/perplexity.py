"""`hightide perplexity`: score a text, to see what a quantisation or a kernel change costs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.groups import grouped
from hightide.cli.model import open_model, require_tokenizer
from hightide.cli.options import MODEL_HELP, Json, ModelOptions, decode_text, note
from hightide.cli.progress import bar
from hightide.llm.perplexity import perplexity as score_text
from hightide.units import counted


@grouped
def perplexity(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=False)],
    file: Annotated[str, typer.Argument(metavar="FILE", help="A UTF-8 text file; - reads stdin.", show_default=False)],
    *,
    window: Annotated[int | None, typer.Option(help="Tokens read at once. Default: the context.")] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens from the start of one window to the next. Default: half a window.")
    ] = None,
    opening: ModelOptions,
    as_json: Json = False,
) -> None:
    """Score how well a model predicts a text.

    Prints the perplexity and the negative log likelihood per token.
    A text longer than the window is read in overlapping windows: every token
    is scored once, with at least window - stride tokens before it.
    """
    text = decode_text(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes(), file)
    llm, _ = open_model(model, opening)
    name, device = llm.path.name, llm.decoder.device
    with llm:
        require_tokenizer(llm)
        start = time.perf_counter()
        with bar(f"scoring {file}", "tokens") as tell:
            score = score_text(llm, text, window=window, stride=stride, progress=tell)
        seconds = time.perf_counter() - start
    if as_json:
        fields = {field: getattr(score, field) for field in ("tokens", "scored", "window", "stride")}
        measured = {"nll": score.nll, "bits": score.bits, "perplexity": score.perplexity, "seconds": seconds}
        print(json.dumps({"model": name, "device": device} | fields | measured))
        return
    print(f"perplexity {score.perplexity:.4f}")
    print(f"nll        {score.nll:.6f} nats per token ({score.bits:.4f} bits), over {counted(score.scored, 'token')}")
    note(f"{name} on {device}: {seconds:.1f} s, {score.scored / seconds:.1f} tok/s")
