"""`hightide generate`: one prompt, one answer; or a file of prompts."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hightide.cli.batch_generate import Summary, generate_batch, logprobs_json, read_prompts
from hightide.cli.constraints import ConstraintOptions
from hightide.cli.groups import grouped
from hightide.cli.model import describe, open_model, require_tokenizer
from hightide.cli.options import (
    MODEL_HELP,
    WITHOUT_MODEL,
    Json,
    MediaFiles,
    ModelOptions,
    SamplingOptions,
    decode_text,
    many_option,
    note,
    sampling_option,
    write_answer,
)
from hightide.cli.progress import bar
from hightide.errors import HightideError, InputError
from hightide.llm.answer import Piece, Stats
from hightide.llm.llm import LLM, Stream
from hightide.llm.model import Message, Prompt
from hightide.llm.options import GenerationOptions
from hightide.units import counted


@dataclass(frozen=True)
class PromptKind(MediaFiles):
    """What the prompt is: text, a message with images and audio or without, or token ids."""

    chat: Annotated[bool, typer.Option("--chat", help="Treat the prompt as a message and answer it.")] = False
    system: Annotated[str | None, typer.Option(help="A system message; implies --chat.")] = None
    ids: Annotated[bool, typer.Option("--ids", help="The prompt is token ids, such as '1 9038 2501'.")] = False

    def messages(self) -> list[Message] | None:
        """Those before the prompt; None if it is no message."""
        if not self.chat and self.system is None:
            return None
        return [] if self.system is None else [{"role": "system", "content": self.system}]


@dataclass(frozen=True)
class ManyPrompts:
    """Prompts from a file."""

    prompts: Annotated[
        Path | None,
        many_option(metavar="FILE", help="Answer every line of a JSONL file: text, or an object with its own options."),
    ] = None
    out: Annotated[
        Path | None,
        many_option(metavar="FILE", help="Where the answers go, one JSON line each. Run again to continue."),
    ] = None
    parallel: Annotated[int, many_option(min=1, metavar="N", help="Answers at a time.")] = 16


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


@dataclass(frozen=True)
class AnswerEnd:
    """Where the answer ends."""

    max_tokens: Annotated[int, typer.Option(min=0, help="Most tokens to generate.")] = 256
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop before this text. Repeatable.")] = None


@dataclass(frozen=True)
class Reported:
    """What is told besides the text."""

    stats: Annotated[bool, typer.Option("--stats", help="Show times and device memory.")] = False
    as_json: Json = False


@grouped
def generate(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP} {WITHOUT_MODEL}")] = None,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to continue; - reads stdin.")] = "-",
    *,
    kind: PromptKind,
    many: ManyPrompts,
    end: AnswerEnd,
    constraint: ConstraintOptions,
    sampling: GenerateSampling,
    opening: ModelOptions,
    told: Reported,
) -> None:
    """Continue a text, or answer a message.

    The text streams to stdout; everything else goes to stderr.
    With --prompts, every line of a file is answered, several at a time.
    """
    answer = dict(max_tokens=end.max_tokens, stop=end.stop or (), grammar=constraint.read())
    options = GenerationOptions().changed(sampling.by_name() | answer)
    if many.prompts is not None or many.out is not None:
        summary = _answer_file(model, prompt, kind, many, options, opening)
        if told.as_json:
            print(json.dumps(asdict(summary)))
        elif told.stats:
            note(str(summary))
        if summary.failed:
            failed = f"{summary.failed} of {counted(summary.prompts, 'prompt')} failed"
            raise HightideError(f"{failed}; {many.out} says why, and the same command tries them again")
        return
    given = _prompt(read_stdin() if prompt == "-" else prompt, kind)
    llm, seconds = open_model(model, opening)
    with llm:
        if not kind.ids:
            require_tokenizer(llm, ", or the prompt as --ids")
        stream, pieces = _answer(llm, given, options, shown=not told.as_json)
        if told.as_json:
            print(json.dumps(_as_json(llm, pieces, stream.finish_reason, stream.stats, seconds), ensure_ascii=False))
            return
        write_answer("\n")
        for piece in pieces if sampling.logprobs else []:
            note(_alternatives(piece, llm))
        if told.stats:
            note("\n".join(describe(llm, stream.stats, seconds)))
        if stream.finish_reason == "context":
            note(f"the context of {llm.context} tokens is full")


def _answer_file(
    model: str | None,
    prompt: str,
    kind: PromptKind,
    many: ManyPrompts,
    options: GenerationOptions,
    opening: ModelOptions,
) -> Summary:
    if many.prompts is None or many.out is None:
        raise InputError("--prompts and --out go together: a file of prompts, and where the answers go")
    if prompt != "-":
        raise InputError("the prompt is an argument or in the file of --prompts, not both")
    if kind.parts():
        raise InputError("--image and --audio are for one prompt; in the file of --prompts they are parts of messages")
    if kind.ids:
        raise InputError("--ids is for one prompt; in the file of --prompts, ids are given as tokens")
    asked = read_prompts(many.prompts, options, kind.messages())
    return generate_batch(model, opening, asked, many.out, many.parallel)


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
    if kind.ids and kind.parts():
        raise InputError("--ids has no place for an image or audio; leave it out")
    if kind.ids:
        try:
            return [int(item) for item in text.replace(",", " ").strip(" []\n").split()]
        except ValueError:
            raise InputError(f"{text!r} is not a list of token ids, such as '1 9038 2501'") from None
    before, parts = kind.messages(), kind.parts()
    if before is None and not parts:
        return text
    return [*(before or []), {"role": "user", "content": [*parts, text] if parts else text}]


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
        if llm.tokenizer is None:
            return str(token)
        return repr(llm.tokenizer.piece(token, made=True).decode("utf-8", "replace"))

    others = ", ".join(f"{name(token)} {logprob:.3f}" for token, logprob in piece.alternatives)
    return "" if piece.token < 0 else f"{name(piece.token)} {piece.logprob or 0.0:.3f}   ({others})"


def _as_json(llm: LLM, pieces: list[Piece], reason: str, stats: Stats, seconds: float) -> dict[str, Any]:
    result: dict[str, Any] = {
        "text": "".join(piece.text for piece in pieces),
        "tokens": [piece.token for piece in pieces if piece.token >= 0],
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
    return result | logprobs_json(pieces)
