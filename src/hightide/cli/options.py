"""What the commands share: their options, and how they write."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from hightide.errors import InputError
from hightide.llm.default_model import DEFAULT
from hightide.media.parts import Audio, Image, MediaPart

MODEL_HELP = f"A GGUF or .pte file, a Hugging Face folder, or '{DEFAULT}' for SmolLM2-135M-Instruct."
WITHOUT_MODEL = "If left out: the model of your last chat, or the default."


class KvType(str, Enum):
    f16 = "f16"
    f32 = "f32"


class Quantize(str, Enum):
    q4_0 = "q4_0"
    q8_0 = "q8_0"
    q4_k = "q4_k"


class OnFull(str, Enum):
    stop = "stop"
    shift = "shift"


def sampling_option(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Sampling", **options)


def many_option(*names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Many prompts", **options)


Tokenizer = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The tokenizer, if the model has none: tokenizer.json, tokenizer.model or GGUF."),
]
Context = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens that the KV cache holds. Default: 2048, or the model's own if that is shorter."),
]
Device = Annotated[
    str | None, typer.Option(help="Where to run: cpu, or an adapter by index or name; gpu:1 is the second GPU.")
]
Kv = Annotated[KvType | None, typer.Option(help="Type of the KV cache. Default: f16 on a GPU that has it, else f32.")]
QuantizeTo = Annotated[Quantize | None, typer.Option(help="Hold float weights in blocks of this type.")]
MergePaths = Annotated[
    list[str] | None,
    typer.Option(
        "--merge", metavar="PATH[=WEIGHT]", help="Merge a LoRA adapter: a GGUF file or a PEFT folder. Repeatable."
    ),
]
Route = Annotated[
    list[str] | None,
    typer.Option("--route", metavar="NAME=OPTION", help="Force a kernel route, such as linear.gemv=split. Repeatable."),
]
MinP = Annotated[
    float, sampling_option(help="Drop tokens that are less probable than this fraction of the likeliest one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class ModelOptions:
    """How a language model is opened."""

    tokenizer: Tokenizer = None
    context: Context = None
    device: Device = None
    kv: Kv = None
    quantize: QuantizeTo = None
    merge: MergePaths = None
    route: Route = None


@dataclass(frozen=True)
class MediaFiles:
    """What a message shows besides its text."""

    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="An image for a model that sees. Repeatable.")
    ] = None
    audio: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A WAV file for a model that hears. Repeatable.")
    ] = None

    def parts(self) -> list[MediaPart]:
        """For the content of a message."""
        return [*map(Image, self.image or ()), *map(Audio, self.audio or ())]


@dataclass(frozen=True)
class SamplingOptions:
    """How an answer is made."""

    temperature: Annotated[
        float, sampling_option(help="0 always takes the likeliest token; 0.7 is a common choice for variety.")
    ] = 0.0
    top_k: Annotated[int, sampling_option(help="Sample from the K likeliest tokens; 0 means all of them.")] = 0
    top_p: Annotated[
        float, sampling_option(help="Sample from the likeliest tokens that together reach this probability.")
    ] = 1.0
    min_p: MinP = 0.0
    repetition_penalty: Annotated[
        float, sampling_option(help="Divide the logits of tokens that have already occurred; 1 means off.")
    ] = 1.0
    seed: Annotated[
        int | None, sampling_option(help="Seed for sampling: the same seed gives the same text on the same adapter.")
    ] = None
    speculate: Annotated[
        bool,
        sampling_option(
            "--speculate", help="Guess tokens from the text so far; faster at temperature 0, and the text is the same."
        ),
    ] = False
    on_full: Annotated[
        OnFull, sampling_option(help="When the context is full: stop, or shift out the oldest part of it.")
    ] = OnFull.stop

    def by_name(self) -> dict[str, Any]:
        """As `LLM.stream` takes them."""
        return asdict(self) | {"on_full": self.on_full.value}


def read_merging(given: list[str] | None) -> dict[str, float]:
    """Paths with weights, as `LLM` takes them."""
    adapters = {}
    for text in given or ():
        path, equals, weight = text.rpartition("=")
        try:
            adapters[path if equals else text] = float(weight) if equals else 1.0
        except ValueError:
            raise InputError(f"an adapter is PATH or PATH=WEIGHT, and {weight!r} is not a number") from None
    return adapters


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
    """To stderr, dimmed on a terminal, behind what stdout has so far."""
    sys.stdout.flush()
    dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(f"\x1b[2m{text}\x1b[0m" if dim else text, file=sys.stderr, flush=True)
