"""What the commands that run a language model share: their options, and how the model is opened."""

from __future__ import annotations

import os
import sys
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hightide.cli.progress import loading
from hightide.errors import InputError

if TYPE_CHECKING:
    from hightide.llm.llm import LLM

DEFAULT = "default"  # SmolLM2-135M-Instruct, by name
MODEL_HELP = f"A GGUF or .pte file, or '{DEFAULT}' for SmolLM2-135M-Instruct."
WITHOUT_MODEL = "Without one: the model of the last chat, else the default."


class KvType(str, Enum):
    f16 = "f16"
    f32 = "f32"


class OnFull(str, Enum):
    stop = "stop"
    shift = "shift"


Tokenizer = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A tokenizer.json, tokenizer.model or GGUF file, if the model has none."),
]
Context = Annotated[
    int | None, typer.Option(min=1, help="Tokens to keep in mind: 2048, or fewer if the model's own is shorter.")
]
Device = Annotated[str | None, typer.Option(help="cpu, or an adapter by index or name.")]
Kv = Annotated[
    KvType | None, typer.Option(help="How keys and values are held; by default f16 on a GPU that has it, else f32.")
]
TopK = Annotated[int, typer.Option(help="Choose among the K likeliest tokens; 0: all.")]
TopP = Annotated[float, typer.Option(help="Choose among the likeliest tokens that have this probability together.")]
MinP = Annotated[float, typer.Option(help="Leave out tokens below this part of the likeliest one's probability.")]
RepetitionPenalty = Annotated[float, typer.Option(help="Divide the logits of tokens already there; 1: do not.")]
PresencePenalty = Annotated[float, typer.Option(help="Subtract from the logits of tokens already there.")]
FrequencyPenalty = Annotated[float, typer.Option(help="The same, once for every time they are there.")]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same text on the same adapter.")]
Speculate = Annotated[
    bool, typer.Option("--speculate", help="Guess tokens from the text so far; the same text, at temperature 0.")
]
Full = Annotated[OnFull, typer.Option(help="When the context is full: stop, or shift out what is oldest.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def check_kind(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(8)
    if start[:4] != b"GGUF" and start[4:] != b"ET12":
        raise InputError(f"{path} is neither a GGUF model nor a .pte program")


def open_model(
    name: str | None, tokenizer: Path | None, context: int | None, device: str | None, kv: KvType | None = None
) -> LLM:
    """The model of this name, with a progress bar while it is loaded; None: the one chatted with last, or SmolLM2."""
    from hightide.llm.default_model import default_model, remembered
    from hightide.llm.llm import LLM

    before = remembered() if name is None else None
    if before is not None:
        path, tokenizer = before[0], tokenizer or before[1]
    elif name is None or name == DEFAULT:
        path = default_model()
    else:
        path = Path(name)
        if not path.is_file():
            raise InputError(f"{path} is not a file: name a GGUF or .pte model, or '{DEFAULT}'")
    check_kind(path)
    with loading(path.name) as tell:
        held = None if kv is None else kv.value
        return LLM(path, tokenizer=tokenizer, context=context, device=device, kv=held, progress=tell)


def open_timed(
    name: str | None, tokenizer: Path | None, context: int | None, device: str | None, kv: KvType | None = None
) -> tuple[LLM, float]:
    """`open_model`, and the seconds it took."""
    start = time.perf_counter()
    llm = open_model(name, tokenizer, context, device, kv)
    return llm, time.perf_counter() - start


def require_tokenizer(llm: LLM, instead: str = "") -> None:
    if llm.tokenizer is None:
        raise InputError(f"{llm.path.name} has no tokenizer: give one with --tokenizer{instead}")


def decode_text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None


def write_answer(text: str) -> None:
    """To stdout, at once. A terminal gets no control characters, which could do anything to it."""
    if sys.stdout.isatty():
        text = "".join(c for c in text if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f"))
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """To stderr, dimmed on a terminal."""
    dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(f"\x1b[2m{text}\x1b[0m" if dim else text, file=sys.stderr, flush=True)
