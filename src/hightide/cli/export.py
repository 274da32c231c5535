"""`hightide export`: a GGUF model, or a Whisper model of whisper.cpp, as a `.pte` program."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.options import note
from hightide.errors import InputError
from hightide.formats.whisper_ggml import is_whisper
from hightide.llm.export import export_gguf, tokenizer_path
from hightide.speech.whisper_export import export_whisper, tokenizer_json_path

MODELS = "A GGUF file of a llama, qwen2, qwen3 or phi3 model, or a Whisper model of whisper.cpp."
GROUP_SIZE, EMBEDDING_BITS = 32, 4


def export(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help=MODELS, show_default=False),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The .pte file to write.", show_default=False)],
    context: Annotated[
        int | None,
        typer.Option(help="Tokens that the KV cache holds. Default: 2048, or the model's own if that is shorter."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Most tokens in one call, fewer than the context. Default: 128.")
    ] = None,
    group_size: Annotated[int, typer.Option(help="How many weights share a scale.")] = GROUP_SIZE,
    embedding_bits: Annotated[int, typer.Option(help="Bits of the token embedding: 4 or 8.")] = EMBEDDING_BITS,
    metadata: Annotated[
        str, typer.Option(metavar="JSON", help="Constant methods to add, such as '{\"get_bos_id\": 1}'.")
    ] = "{}",
) -> None:
    """Export a GGUF or Whisper model as a .pte program.

    A GGUF model gets 4-bit weights; one of Whisper is exported in float32, and
    takes no option but --metadata. The tokenizer is written beside the program.
    Needs torch and executorch, which the export extra of hightide installs.
    """
    try:
        extra = json.loads(metadata)
    except json.JSONDecodeError as error:
        raise InputError(f"--metadata is not JSON: {error}") from None
    if not isinstance(extra, dict):
        raise InputError("--metadata must be a JSON object")
    start = time.perf_counter()
    if is_whisper(model):
        if (context, max_tokens, group_size, embedding_bits) != (None, None, GROUP_SIZE, EMBEDDING_BITS):
            raise InputError("a Whisper model is exported as it is, with no option but --metadata")
        export_whisper(model, out, metadata=extra)
        tokenizer = tokenizer_json_path(out)
    else:
        export_gguf(
            model,
            out,
            context=context,
            max_tokens=max_tokens,
            group_size=group_size,
            embedding_bits=embedding_bits,
            metadata=extra,
        )
        tokenizer = tokenizer_path(out)
    print(out)
    beside = f", its tokenizer in {tokenizer.name}" if tokenizer.is_file() else ""
    size = out.stat().st_size / 1e6
    note(f"{size:.1f} MB in {time.perf_counter() - start:.0f} s{beside}")
