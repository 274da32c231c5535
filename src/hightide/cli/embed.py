"""`hightide embed`: the vectors of texts, as JSON lines or as a NumPy file."""

from __future__ import annotations

import json
import sys
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from hightide.cli.groups import grouped
from hightide.cli.model import open_embedder, require_tokenizer
from hightide.cli.options import ModelOptions, decode_text, note, write_answer
from hightide.errors import InputError
from hightide.folders import replacing
from hightide.units import counted


class RowPooling(str, Enum):
    auto = "auto"
    mean = "mean"
    cls = "cls"
    last = "last"


@grouped
def embed(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A GGUF file or a Hugging Face folder.", show_default=False)
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="The texts.", show_default=False)
    ] = None,
    *,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Embed each line of a file, too; - reads stdin.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a .npy file [texts, width], or a .jsonl file. Default: JSON lines."),
    ] = None,
    pooling: Annotated[
        RowPooling, typer.Option(help="Which of a text's tokens make its vector. auto: as the model's file says.")
    ] = RowPooling.auto,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts that the context does not hold.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Leave vectors as long as they are, not of length 1.")] = False,
    options: ModelOptions,
) -> None:
    """Turn texts into vectors.

    Texts that mean the same have vectors that point the same way. The model is
    an encoder (BERT and its kin), or any decoder.
    """
    given = [*(texts or []), *(_lines(file) if file is not None else [])]
    if not given:
        raise InputError("there is nothing to embed; give texts, or --file")
    if out is not None and out.suffix not in (".npy", ".jsonl"):
        raise InputError(f"{out} must end in .npy or .jsonl")
    with open_embedder(model, options, pooling=pooling.value) as embedder:
        require_tokenizer(embedder)
        start = time.perf_counter()
        vectors = embedder.embed(given, truncate=truncate, normalize=not raw)
        seconds = time.perf_counter() - start
    if out is None:
        write_answer(_json_lines(given, vectors))
    else:
        _write(out, given, vectors)
    note(f"{counted(len(given), 'text')} of {vectors.shape[1]} numbers each in {seconds:.2f} s")


def _lines(name: str) -> list[str]:
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    return [line for line in decode_text(data, name).removeprefix("\ufeff").splitlines() if line.strip()]


def _json_lines(texts: list[str], vectors: np.ndarray) -> str:
    rows = zip(texts, vectors.tolist(), strict=True)
    made = ({"index": n, "text": text, "embedding": vector} for n, (text, vector) in enumerate(rows))
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in made)


def _write(path: Path, texts: list[str], vectors: np.ndarray) -> None:
    with replacing(path) as file:
        if path.suffix == ".npy":
            np.save(file, vectors)
        else:
            file.write(_json_lines(texts, vectors).encode())
