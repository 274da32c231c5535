"""`hightide generate --prompts`: every line of a file answered, several at a time, into another file.

A line that is written is whole. Run again, the command goes on with the prompts that have no answer yet.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import typer

from hightide.cli import constraints
from hightide.cli.model import open_engine, require_tokenizer
from hightide.cli.options import ModelOptions, decode_text, note
from hightide.cli.progress import Tell, bar
from hightide.errors import HightideError, InputError
from hightide.folders import replacing
from hightide.llm.answer import Completion, Piece
from hightide.llm.engine import Engine
from hightide.llm.model import Prompt
from hightide.llm.options import GenerationOptions
from hightide.llm.token_sampling import Sampling
from hightide.option_checks import shown
from hightide.units import counted

KINDS = ("prompt", "messages", "tokens")
OPTIONS = {field.name for kind in (GenerationOptions, Sampling) for field in fields(kind)}
OPTIONS = (OPTIONS - {"sampling", "progress"}) | constraints.KINDS.keys()
TELL_SECONDS = 0.5  # from one update of the progress bar to the next


@dataclass(frozen=True)
class Asked:
    """A line of the file of prompts."""

    index: int  # among the lines that are not blank
    prompt: Prompt
    options: GenerationOptions
    id: str | int | None
    of: str  # stands for the line in its answer

    @property
    def is_text(self) -> bool:
        return isinstance(self.prompt, str) or any(isinstance(item, Mapping) for item in self.prompt)

    def names(self) -> dict[str, Any]:
        """What an answer begins with."""
        return {"index": self.index} | ({} if self.id is None else {"id": self.id}) | {"of": self.of}


@dataclass
class Summary:
    """What a run did."""

    prompts: int
    skipped: int  # had an answer
    answers: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = self.new_tokens / self.seconds if self.seconds else 0.0
        skipped = f", {self.skipped} were there" if self.skipped else ""
        made = f"{self.prompt_tokens} prompt tokens, {self.new_tokens} new tokens"
        return f"{counted(self.answers, 'answer')}{skipped}: {made} in {self.seconds:.1f} s ({rate:.1f} tok/s)"


def read_prompts(path: Path, defaults: GenerationOptions, system: Sequence[Any] | None) -> list[Asked]:
    """The lines of a file; InputError for the first that is wrong. `system`: texts are messages, behind these."""
    asked: list[Asked] = []
    text = decode_text(path.read_bytes(), str(path)).removeprefix("\ufeff")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            given = _object(line)
            prompt, options = _prompt(given), _options(given, defaults)
        except InputError as error:
            raise InputError(f"{path} line {number}: {error}") from None
        if isinstance(prompt, str) and system is not None:
            prompt = [*system, {"role": "user", "content": prompt}]
        of = blake2b(line.strip().encode(), digest_size=6).hexdigest()
        asked.append(Asked(len(asked), prompt, options, given.get("id"), of))
    return asked


def _object(line: str) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    given = {"prompt": given} if isinstance(given, str) else given
    if not isinstance(given, dict):
        raise InputError(f"not an object or a string, but {shown(given)}")
    if unknown := next((name for name in given if name not in {*KINDS, "id", *OPTIONS}), None):
        raise InputError(f"there is no key {unknown!r}; the keys are {', '.join((*KINDS, 'id', *sorted(OPTIONS)))}")
    if not isinstance(given.get("id"), str | int | None) or isinstance(given.get("id"), bool):
        raise InputError(f"id must be text or an integer, not {shown(given['id'])}")
    return given


def _prompt(given: Mapping[str, Any]) -> Prompt:
    kinds = [kind for kind in KINDS if kind in given]
    if len(kinds) != 1:
        raise InputError(f"exactly one of prompt, messages and tokens is needed, not {' and '.join(kinds) or 'none'}")
    value: Any = given[kinds[0]]
    item = {"prompt": str, "messages": dict, "tokens": int}[kinds[0]]
    if kinds[0] == "prompt":
        if not isinstance(value, str):
            raise InputError(f"prompt must be text, not {shown(value)}")
        return value
    if not isinstance(value, list) or not all(isinstance(x, item) and not isinstance(x, bool) for x in value):
        what = "messages with a role and content" if item is dict else "token ids"
        raise InputError(f"{kinds[0]} must be a list of {what}, not {shown(value)}")
    return value


def _options(given: Mapping[str, Any], defaults: GenerationOptions) -> GenerationOptions:
    changes = {name: value for name, value in given.items() if name in OPTIONS and name not in constraints.KINDS}
    if grammar := constraints.read_grammar(given):
        changes["grammar"] = grammar
    if isinstance(bias := changes.get("logit_bias"), dict):  # keys of JSON are strings
        try:
            changes["logit_bias"] = {int(token): value for token, value in bias.items()}
        except ValueError:
            raise InputError(f"logit_bias must map token ids to numbers, not {shown(bias)}") from None
    return defaults.changed(changes)


def begin_answers(path: Path, asked: Sequence[Asked]) -> set[int]:
    """Which prompts a file of answers has; those that failed, and a line that was cut, are taken out of it.

    InputError if the file is something else, or has the answers to other prompts.
    """
    if not path.is_file():  # or a pipe
        return set()
    lines = path.read_bytes().split(b"\n")
    done: dict[int, bytes] = {}
    for number, line in enumerate(lines[:-1], 1):
        try:
            answer = json.loads(line)
            index, of, failed = answer["index"], answer["of"], "error" in answer
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{path} line {number} is not an answer; give another --out") from None
        if not isinstance(index, int) or not 0 <= index < len(asked) or asked[index].of != of:
            raise InputError(f"{path} line {number} is the answer to another prompt; give another --out")
        if not failed:
            done[index] = line
    if len(done) < len(lines) - 1 or lines[-1]:
        with replacing(path) as file:
            file.writelines(line + b"\n" for line in done.values())
    return set(done)


def generate_batch(
    model: str | None, opening: ModelOptions, asked: Sequence[Asked], out: Path, parallel: int
) -> Summary:
    """Answer the prompts that have no answer in `out` yet, `parallel` at a time."""
    done = begin_answers(out, asked)
    left = [one for one in asked if one.index not in done]
    summary = Summary(len(asked), len(done))
    if not left:
        return summary
    with out.open("ab") as file:
        engine = open_engine(model, opening, max_sequences=parallel, max_waiting=max(1024, 2 * parallel))
        start = time.perf_counter()
        try:
            with engine:
                if any(one.is_text for one in left):
                    require_tokenizer(engine, ", or the prompts as tokens")
                with bar("answering", "answers", lambda: f", {engine.stats().tokens_per_second:.0f} tok/s") as tell:
                    asyncio.run(_answer_all(engine, left, file, summary, tell, 2 * parallel))
        except KeyboardInterrupt:
            there = len(done) + summary.answers
            note(f"interrupted: {out} has {there} of {counted(len(asked), 'answer')}; the same command goes on with it")
            raise typer.Exit(130) from None
        finally:
            summary.seconds = time.perf_counter() - start
    return summary


async def _answer_all(
    engine: Engine, left: Sequence[Asked], file: BinaryIO, summary: Summary, tell: Tell | None, workers: int
) -> None:
    async def work(lines: Iterator[Asked]) -> None:
        for one in lines:
            answer = await _answer(engine, one, summary)
            file.write(_line(one.names() | answer))
            file.flush()

    async def report() -> None:
        while tell is not None:
            tell(summary.answers + summary.failed, len(left))
            await asyncio.sleep(TELL_SECONDS)

    shared = iter(left)  # whoever is free takes the next
    reporting = asyncio.ensure_future(report())
    try:
        await asyncio.gather(*(work(shared) for _ in range(min(workers, len(left)))))
    finally:
        reporting.cancel()


async def _answer(engine: Engine, asked: Asked, summary: Summary) -> dict[str, Any]:
    try:
        made = await engine.submit(asked.prompt, asked.options).result_async()
    except HightideError as error:
        summary.failed += 1
        return {"error": str(error)}
    summary.answers += 1
    summary.prompt_tokens += made.stats.prompt_tokens
    summary.new_tokens += made.stats.new_tokens
    return _as_json(made)


def _as_json(made: Completion) -> dict[str, Any]:
    result = {
        "text": made.text,
        "tokens": made.tokens,
        "finish_reason": made.finish_reason,
        "prompt_tokens": made.stats.prompt_tokens,
        "new_tokens": made.stats.new_tokens,
    }
    return result | logprobs_json(made.pieces)


def logprobs_json(pieces: Sequence[Piece]) -> dict[str, Any]:
    """The log probabilities, if they were asked for."""
    tokens = [piece for piece in pieces if piece.token >= 0]
    if all(piece.logprob is None for piece in tokens):
        return {}
    each = [
        {"token": piece.token, "logprob": piece.logprob, "alternatives": [list(a) for a in piece.alternatives]}
        for piece in tokens
    ]
    return {"logprobs": each}


def _line(answer: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(answer, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a character, of an id perhaps
        return json.dumps(answer).encode() + b"\n"
