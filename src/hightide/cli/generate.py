"""`hightide generate`: one prompt, one answer."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hightide.cli.groups import grouped
from hightide.cli.model import describe, open_model, require_tokenizer
from hightide.cli.options import (
    MODEL_HELP,
    WITHOUT_MODEL,
    Json,
    ModelOptions,
    SamplingOptions,
    decode_text,
    note,
    sampling_option,
    write_answer,
)
from hightide.cli.progress import bar
from hightide.errors import InputError
from hightide.llm.answer import Piece, Stats
from hightide.llm.llm import LLM, Stream
from hightide.llm.model import Prompt
from hightide.llm.options import GenerationOptions


@dataclass(frozen=True)
class PromptKind:
    """What the prompt is: text, a message, or token ids."""

    chat: Annotated[bool, typer.Option("--chat", help="Treat the prompt as a message and answer it.")] = False
    system: Annotated[str | None, typer.Option(help="A system message; implies --chat.")] = None
    ids: Annotated[bool, typer.Option("--ids", help="The prompt is token ids, such as '1 9038 2501'.")] = False


@dataclass(frozen=True)
class GenerateSampling(SamplingOptions):
    """As in a chat, and what needs the logits."""

    presence_penalty: Annotated[
        float, sampling_option(help="Subtract this from the logits of tokens that have already occurred.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, sampling_option(help="Subtract this for every time that a token has already occurred.")
    ] = 0.0
    logit_bias: Annotated[
        list[str] | None, sampling_option(metavar="ID=BIAS", help="Add to the logit of a token. Repeatable.")
    ] = None
    logprobs: Annotated[int, sampling_option(min=0, help="Show the N likeliest tokens at each step.")] = 0

    def by_name(self) -> dict[str, Any]:
        return super().by_name() | {"logit_bias": dict(_bias(text) for text in self.logit_bias or ())}


@grouped
def generate(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP} {WITHOUT_MODEL}")] = None,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to continue; - reads stdin.")] = "-",
    *,
    kind: PromptKind,
    max_tokens: Annotated[int, typer.Option(min=0, help="Most tokens to generate.")] = 256,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop before this text. Repeatable.")] = None,
    sampling: GenerateSampling,
    opening: ModelOptions,
    stats: Annotated[bool, typer.Option("--stats", help="Show times and device memory.")] = False,
    as_json: Json = False,
) -> None:
    """Continue a text, or answer a message.

    The text streams to stdout; everything else goes to stderr.
    """
    options = GenerationOptions().changed(sampling.by_name() | dict(max_tokens=max_tokens, stop=stop or ()))
    given = _prompt(read_stdin() if prompt == "-" else prompt, kind)
    llm, seconds = open_model(model, opening)
    with llm:
        if not kind.ids:
            require_tokenizer(llm, ", or the prompt as --ids")
        stream, pieces = _answer(llm, given, options, shown=not as_json)
        if as_json:
            print(json.dumps(_as_json(llm, pieces, stream.finish_reason, stream.stats, seconds), ensure_ascii=False))
            return
        write_answer("\n")
        for piece in pieces if sampling.logprobs else []:
            note(_alternatives(piece, llm))
        if stats:
            note("\n".join(describe(llm, stream.stats, seconds)))
        if stream.finish_reason == "context":
            note(f"the context of {llm.context} tokens is full")


def _answer(llm: LLM, prompt: Prompt, options: GenerationOptions, shown: bool) -> tuple[Stream, list[Piece]]:
    """The whole answer, written as it arrives."""
    with bar("reading the prompt", "tokens") as tell:
        stream = llm.stream(prompt, options, progress=tell)
        piece = next(stream, None)
    pieces: list[Piece] = []
    while piece is not None:
        pieces.append(piece)
        if shown:
            write_answer(_shown(piece, llm))
        piece = next(stream, None)
    return stream, pieces


def read_stdin() -> str:
    """The prompt, without the newline that ends a text file."""
    if sys.stdin.isatty():
        note("type the prompt, then press Ctrl-D:")
    return decode_text(sys.stdin.buffer.read(), "the prompt").removesuffix("\n").removesuffix("\r")


def _prompt(text: str, kind: PromptKind) -> Prompt:
    if kind.ids:
        try:
            return [int(item) for item in text.replace(",", " ").strip(" []\n").split()]
        except ValueError:
            raise InputError(f"{text!r} is not a list of token ids, such as '1 9038 2501'") from None
    if not kind.chat and kind.system is None:
        return text
    system = [] if kind.system is None else [{"role": "system", "content": kind.system}]
    return [*system, {"role": "user", "content": text}]


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise InputError(f"{text!r} is not a bias such as 42=-1.5") from None


def _shown(piece: Piece, llm: LLM) -> str:
    """Text; without a tokenizer the token's id."""
    return piece.text if llm.tokenizer else f"{piece.token} "


def _alternatives(piece: Piece, llm: LLM) -> str:
    def name(token: int) -> str:
        return repr(llm.tokenizer.decode([token], special=True, continues=True)) if llm.tokenizer else str(token)

    others = ", ".join(f"{name(token)} {logprob:.3f}" for token, logprob in piece.alternatives)
    return "" if piece.token < 0 else f"{name(piece.token)} {piece.logprob or 0.0:.3f}   ({others})"


def _as_json(llm: LLM, pieces: list[Piece], reason: str, stats: Stats, seconds: float) -> dict[str, Any]:
    tokens = [piece for piece in pieces if piece.token >= 0]
    result: dict[str, Any] = {
        "text": "".join(piece.text for piece in pieces),
        "tokens": [piece.token for piece in tokens],
        "finish_reason": reason,
        "stats": {
            "model": llm.path.name,
            "device": llm.decoder.device,
            "context": llm.context,
            "load_seconds": seconds,
            "prompt_tokens": stats.prompt_tokens,
            "new_tokens": stats.new_tokens,
            "time_to_first_token": stats.time_to_first_token,
            "prefill_rate": stats.prefill_rate,
            "decode_rate": stats.decode_rate,
            "device_bytes": stats.device_bytes,
        },
    }
    if any(piece.logprob is not None for piece in tokens):
        result["logprobs"] = [
            {"token": piece.token, "logprob": piece.logprob, "alternatives": [list(a) for a in piece.alternatives]}
            for piece in tokens
        ]
    return result
