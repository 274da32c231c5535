"""`hightide export`: a torch module, or a GGUF or Whisper model, as a `.pte` program."""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hightide.cli.groups import grouped
from hightide.cli.options import Device, Json, note
from hightide.cli.window import window
from hightide.errors import ExportError, InputError
from hightide.formats.whisper_ggml import is_whisper
from hightide.llm.export import export_gguf, tokenizer_path
from hightide.speech.whisper_export import export_whisper, tokenizer_json_path
from hightide.tools.export.dynamic_dims import parse_dynamic
from hightide.tools.export.export_module import export as export_module
from hightide.tools.export.export_report import PLAIN_WIDTH, render
from hightide.tools.export.python_model import make_python_model, names_python
from hightide.tools.word_tables import show

DEFAULT_GROUP, DEFAULT_EMBEDDING_BITS = 32, 4


def gguf_option(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="GGUF models", show_default=False, **options)


def module_option(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Torch modules", **options)


@dataclass(frozen=True)
class GgufOptions:
    """How a GGUF model is exported."""

    context: Annotated[
        int | None,
        gguf_option(help="Tokens that the KV cache holds. Default: 2048, or the model's own if that is shorter."),
    ] = None
    max_tokens: Annotated[
        int | None, gguf_option(help="Most tokens in one call, fewer than the context. Default: 128.")
    ] = None
    group_size: Annotated[int | None, gguf_option(help="How many weights share a scale. Default: 32.")] = None
    embedding_bits: Annotated[int | None, gguf_option(help="Bits of the token embedding: 4 or 8. Default: 4.")] = None
    metadata: Annotated[
        str | None, gguf_option(metavar="JSON", help="Constant methods to add, such as '{\"get_bos_id\": 1}'.")
    ] = None


@dataclass(frozen=True)
class ModuleOptions:
    """How a torch module is exported and checked."""

    dynamic: Annotated[
        list[str] | None,
        module_option(
            metavar="NAME:DIM=SYMBOL<=MAX",
            help="A dim of an input that varies, such as x:1=S<=128, x:1=4<=S<=128 or y:1=2*S. Repeatable; the same "
            "symbol is the same size.",
        ),
    ] = None
    fp16: Annotated[bool, module_option("--fp16", help="Hold halves in the delegates.")] = False
    tolerance: Annotated[
        float | None,
        module_option(
            min=0,
            help="Largest error that passes, as a fraction of the output's range. Default: 1e-3, with halves 2e-2.",
        ),
    ] = None
    seed: Annotated[int, module_option(min=0, help="Seed for the random inputs.")] = 0
    device: Device = None
    as_json: Json = False
    show_traceback: Annotated[
        bool, module_option("--traceback", help="On an error, print where it was raised as well.")
    ] = False


@grouped
def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="model.py:make_model or package.module:make_model, a function that returns a torch module and a tuple "
            "of example inputs. Or a GGUF file of a llama, qwen2, qwen3 or phi3 model, or a Whisper model of "
            "whisper.cpp.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The .pte file to write.", show_default=False)],
    *,
    modules: ModuleOptions,
    gguf: GgufOptions,
) -> None:
    """Export a torch module, or a GGUF or Whisper model, as a .pte program.

    A module is compared with eager at several live sizes.
    The exit code is 1 if a size is wrong.
    A GGUF model gets 4-bit weights; one of Whisper is exported in float32, and
    takes --metadata only. The tokenizer is written beside the program.
    Needs torch and executorch, which the export extra of hightide installs.
    """
    start = time.perf_counter()
    if names_python(model):
        _refuse(gguf, "is for GGUF models")
        _export_python(model, out, modules, start)
    else:
        _refuse(modules, "is for torch modules, such as model.py:make_model")
        _export_file(Path(model), out, gguf, start)


def _refuse(options: GgufOptions | ModuleOptions, why: str) -> None:
    """An error if an option of the other kind of model was given."""
    unused = asdict(type(options)())
    for name, value in asdict(options).items():
        if value != unused[name]:
            shown = {"as_json": "json", "show_traceback": "traceback"}.get(name, name).replace("_", "-")
            raise InputError(f"--{shown} {why}")


def _export_python(source: str, out: Path, options: ModuleOptions, start: float) -> None:
    parse_dynamic(options.dynamic or ())  # what is wrong there is said before torch is imported
    try:
        made = make_python_model(source)
        dynamic = options.dynamic or made.options.get("dynamic_shapes")
        report = export_module(
            made.module,
            made.inputs,
            dynamic,
            out,
            checks=made.options.get("checks"),
            device=options.device,
            fp16=options.fp16,
            tolerance=options.tolerance,
            seed=options.seed,
        )
    except ExportError as error:
        if options.show_traceback and error.__cause__ is not None:
            note("".join(traceback.format_exception(error.__cause__)))
        raise
    if options.as_json:
        print(json.dumps(report.as_json()))
    else:
        show(window(PLAIN_WIDTH), render(report))
    note(f"in {time.perf_counter() - start:.0f} s")
    raise typer.Exit(0 if report.passed else 1)


def _export_file(model: Path, out: Path, options: GgufOptions, start: float) -> None:
    try:
        extra = json.loads(options.metadata or "{}")
    except json.JSONDecodeError as error:
        raise InputError(f"--metadata is not JSON: {error}") from None
    if not isinstance(extra, dict):
        raise InputError("--metadata must be a JSON object")
    if is_whisper(model):
        if options != GgufOptions(metadata=options.metadata):
            raise InputError("a Whisper model is exported as it is, with no option but --metadata")
        export_whisper(model, out, metadata=extra)
        tokenizer = tokenizer_json_path(out)
    else:
        export_gguf(
            model,
            out,
            context=options.context,
            max_tokens=options.max_tokens,
            group_size=DEFAULT_GROUP if options.group_size is None else options.group_size,
            embedding_bits=DEFAULT_EMBEDDING_BITS if options.embedding_bits is None else options.embedding_bits,
            metadata=extra,
        )
        tokenizer = tokenizer_path(out)
    print(out)
    beside = f", its tokenizer in {tokenizer.name}" if tokenizer.is_file() else ""
    size = out.stat().st_size / 1e6
    note(f"{size:.1f} MB in {time.perf_counter() - start:.0f} s{beside}")
