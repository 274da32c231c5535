"""Where images and audio go in the text of a prompt: the marks that chat templates write for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hightide.errors import InputError
from hightide.llm.tokenizer import Tokenizer
from hightide.media.parts import MediaPart, read_part
from hightide.units import counted


@dataclass(frozen=True)
class MediaMark:
    """What stands for an image or for audio in the text of a prompt."""

    written: str  # by the template
    becomes: str  # before the text is made into tokens
    token: str  # the one in it whose place the rows take


def _alone(token: str) -> MediaMark:
    return MediaMark(token, token, token)


# By kind, as the models' own processors have them; the first whose tokens a vocabulary has is taken.
KNOWN = {
    "image": (
        MediaMark(
            "<start_of_image>", "\n\n<start_of_image><image_soft_token><end_of_image>\n\n", "<image_soft_token>"
        ),  # Gemma 3
        *map(_alone, ("<|image_pad|>", "<image>", "<|image|>", "[IMG]", "<IMG_CONTEXT>")),
    ),
    "audio": tuple(map(_alone, ("[AUDIO]", "<|AUDIO|>", "<|audio|>", "<audio>"))),
}
TOKEN_IDS = {"image": "vision_token_id", "audio": "audio_token_id"}  # as optimum-executorch writes them

_PARTS = re.compile(r"""['"](image|image_url|audio|input_audio)['"]""")  # a template that looks into lists of parts


def find_mark(tokenizer: Tokenizer, kind: str, given: str | None, metadata: Mapping[str, Any]) -> MediaMark | None:
    """The mark of a kind: the token that the caller names, one that is known, or the one that the program names."""
    if given is not None:
        if tokenizer.find(given) is None:
            raise InputError(f"media_tokens has {given!r} for {kind}, which is no token of the model's vocabulary")
        return _alone(given)
    for mark in KNOWN[kind]:
        if all(tokenizer.find(token) is not None for token in (mark.written, mark.token)):
            return mark
    id = metadata.get(TOKEN_IDS[kind])
    known = isinstance(id, int) and 0 <= id < tokenizer.vocab_size and tokenizer.token(id)
    return _alone(known) if known else None


Marks = Mapping[str, MediaMark | None]  # of the kinds that a model has encoders for


def take_media(
    messages: Sequence[Any], template: str | None, marks: Marks, model: str
) -> tuple[list[Any], list[MediaPart]]:
    """Messages as the template takes them, and what they have besides text, in order.

    A template that looks into lists of parts writes the marks itself; for another one they are put into the text.
    """
    parts_known = isinstance(template, str) and bool(_PARTS.search(template))
    text_known = not parts_known or bool(re.search(r"is\s+string", template or ""))
    media: list[MediaPart] = []
    taken = []
    for n, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        if content is None or (isinstance(content, str) and text_known):
            taken.append(message)
            continue
        parts = _read_parts(content, f"message {n + 1}")
        found = [part for part in parts if not isinstance(part, str)]
        for part in found:
            _check_kind(part, marks, model)
        media += found
        if parts_known and (found or not text_known):
            content = tuple(
                {"type": "text", "text": part} if isinstance(part, str) else {"type": part.kind} for part in parts
            )
        else:
            content = "".join(part if isinstance(part, str) else _mark(part, marks).written for part in parts)
        taken.append({**message, "content": content})
    return taken, media


def with_rows(text: str, media: Sequence[MediaPart], marks: Marks) -> str:
    """The text of a prompt with its marks as they become."""
    for kind in dict.fromkeys(part.kind for part in media):
        mark, wanted = _mark(kind, marks), sum(part.kind == kind for part in media)
        count = text.count(mark.written)
        if count != wanted:
            said = f"the prompt has {mark.written} {counted(count, 'time')}, for {counted(wanted, 'part')} of {kind}"
            raise InputError(f"{said}; the chat template must write it for each, and no text may have it")
        if mark.becomes != mark.written:
            text = text.replace(mark.written, mark.becomes)
    return text


def place_media(ids: Sequence[int], media: Sequence[MediaPart], marks: Marks, tokenizer: Tokenizer) -> list[int]:
    """The ids with -1 - n where the n-th image or audio goes."""
    placed = list(ids)
    for kind in dict.fromkeys(part.kind for part in media):
        token = tokenizer.find(_mark(kind, marks).token)
        places = [at for at, id in enumerate(ids) if id == token]
        numbers = [n for n, part in enumerate(media) if part.kind == kind]
        if len(places) != len(numbers):
            raise InputError(f"the text of the prompt has {_mark(kind, marks).token}, which stands for {kind}")
        for at, n in zip(places, numbers, strict=True):
            placed[at] = -1 - n
    return placed


def no_encoder(model: str, kind: str, has: Iterable[str]) -> str:
    """What to say of an image that is given to a model of text."""
    takes = " and ".join(["text", *has])
    return f"{model} takes {takes} only: it has no encoder for {'images' if kind == 'image' else kind}"


def _read_parts(content: Any, place: str) -> list[str | MediaPart]:
    if not isinstance(content, list | tuple):
        return [read_part(content, place)]
    return [read_part(part, f"part {n + 1} of {place}") for n, part in enumerate(content)]


def _check_kind(part: MediaPart, marks: Marks, model: str) -> None:
    if part.kind not in marks:
        raise InputError(no_encoder(model, part.kind, marks))
    if marks[part.kind] is None:
        raise InputError(f"no token of {model} is known to stand for {part.kind}; name it with media_tokens")


def _mark(part: MediaPart | str, marks: Marks) -> MediaMark:
    mark = marks[part if isinstance(part, str) else part.kind]
    assert mark is not None
    return mark
