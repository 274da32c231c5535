"""`hightide convert`: a Hugging Face folder as a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.options import QuantizeTo, note
from hightide.cli.progress import bar
from hightide.llm.convert import convert_model


def convert(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder, or a GGUF file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The GGUF file to write.")],
    quantize: QuantizeTo = None,
) -> None:
    """Write a Hugging Face folder as a GGUF file.

    Its tokenizer is in the file; --quantize makes it smaller.
    """
    with bar(f"converting {model.resolve().name}", "bytes") as tell:
        convert_model(model, out, None if quantize is None else quantize.value, tell)
    note(f"wrote {out}, {out.stat().st_size / 1e6:.1f} MB")
