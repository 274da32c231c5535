"""`hightide generate`: one prompt, one answer."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hightide.cli.options import (
    MODEL_HELP,
    WITHOUT_MODEL,
    Context,
    Device,
    FrequencyPenalty,
    Full,
    Json,
    Kv,
    MinP,
    OnFull,
    PresencePenalty,
    RepetitionPenalty,
    Seed,
    Speculate,
    Tokenizer,
    TopK,
    TopP,
    decode_text,
    note,
    open_timed,
    require_tokenizer,
    write_answer,
)
from hightide.cli.progress import bar
from hightide.errors import InputError

if TYPE_CHECKING:
    from hightide.llm.answer import Piece, Stats
    from hightide.llm.llm import LLM, Prompt


def generate(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP} {WITHOUT_MODEL}")] = None,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text to go on with; - is stdin.")] = "-",
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message, to be answered.")] = False,
    system: Annotated[str | None, typer.Option(help="A system message; implies --chat.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="The prompt is token ids, such as '1 9038 2501'.")] = False,
    max_tokens: Annotated[int, typer.Option(min=0, help="Tokens to make at most.")] = 256,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token.")] = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    logit_bias: Annotated[list[str] | None, typer.Option(metavar="ID=BIAS", help="Add to a token's logit.")] = None,
    seed: Seed = None,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before this text.")] = None,
    logprobs: Annotated[int, typer.Option(min=0, help="Show the N likeliest tokens at each step.")] = 0,
    speculate: Speculate = False,
    on_full: Full = OnFull.stop,
    tokenizer: Tokenizer = None,
    context: Context = None,
    device: Device = None,
    kv: Kv = None,
    stats: Annotated[bool, typer.Option("--stats", help="Show times and device memory.")] = False,
    as_json: Json = False,
) -> None:
    """Go on with a text, or answer a message; the text streams to stdout."""
    options: dict[str, Any] = dict(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=dict(_bias(text) for text in logit_bias or ()),
        seed=seed,
        stop=stop or (),
        logprobs=logprobs,
        speculate=speculate,
        on_full=on_full.value,
    )
    given = _prompt(read_stdin() if prompt == "-" else prompt, chat or system is not None, system, ids)
    llm, loading = open_timed(model, tokenizer, context, device, kv)
    if not ids:
        require_tokenizer(llm, " or the prompt as --ids")
    with bar("reading the prompt", "tokens") as tell:
        stream = llm.stream(given, progress=tell, **options)
        first = next(stream, None)
    pieces: list[Piece] = []
    piece = first
    while piece is not None:
        pieces.append(piece)
        if not as_json:
            write_answer(_shown(piece, llm))
        piece = next(stream, None)
    if as_json:
        print(json.dumps(_as_json(llm, pieces, stream.finish_reason, stream.stats, loading), ensure_ascii=False))
        return
    write_answer("\n")
    for piece in pieces if logprobs else []:
        note(_alternatives(piece, llm))
    if stats:
        note("\n".join(describe(llm, stream.stats, loading)))
    if stream.finish_reason == "context":
        note(f"the context of {llm.context} tokens is full")


def describe(llm: LLM, stats: Stats, loading: float) -> list[str]:
    """Times and memory, a line each."""
    memory = stats.device_bytes
    kinds = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in memory.items() if size >= 50_000)
    reused = f" ({stats.reused_tokens} of them reused)" if stats.reused_tokens else ""
    calls = f" in {stats.calls + 1} calls" if stats.calls + 1 < stats.new_tokens else ""
    return [
        f"model          {llm.path.name} on {llm.decoder.device}, context {llm.context}, loaded in {loading:.2f} s",
        f"prompt         {stats.prompt_tokens} tokens{reused}, {stats.prefill_rate:.1f} tok/s",
        f"first token    after {stats.time_to_first_token:.2f} s",
        f"answer         {stats.new_tokens} tokens{calls}, {stats.decode_rate:.1f} tok/s",
        f"device memory  {sum(memory.values()) / 1e6:.1f} MB: {kinds}" if memory else "device memory  unknown",
    ]


def read_stdin() -> str:
    """The prompt, without the newline that ends a text file."""
    if sys.stdin.isatty():
        note("the prompt, up to Ctrl-D:")
    return decode_text(sys.stdin.buffer.read(), "the prompt").removesuffix("\n").removesuffix("\r")


def _prompt(text: str, chat: bool, system: str | None, ids: bool) -> Prompt:
    if ids:
        try:
            return [int(item) for item in text.replace(",", " ").strip(" []\n").split()]
        except ValueError:
            raise InputError(f"{text!r} is not token ids such as '1 9038 2501'") from None
    if not chat:
        return text
    message = {"role": "user", "content": text}
    return [message] if system is None else [{"role": "system", "content": system}, message]


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


def _as_json(llm: LLM, pieces: list[Piece], reason: str, stats: Stats, loading: float) -> dict[str, Any]:
    tokens = [piece for piece in pieces if piece.token >= 0]
    result: dict[str, Any] = {
        "text": "".join(piece.text for piece in pieces),
        "tokens": [piece.token for piece in tokens],
        "finish_reason": reason,
        "stats": {
            "model": llm.path.name,
            "device": llm.decoder.device,
            "context": llm.context,
            "load_seconds": loading,
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
