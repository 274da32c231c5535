"""Where images and audio go in a prompt: what templates write for them, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_vocabulary import PARTS, media_tokenizer

from hightide import Audio, Image, InputError
from hightide.llm.chat_prompt import ChatPrompt, chat_prompt
from hightide.llm.media_marks import MediaMark, find_mark
from hightide.llm.tokenizer import Tokenizer

PICTURE, SOUND = Image(np.zeros((2, 2, 3), np.uint8)), Audio(np.zeros(16), 16000)
ASKED = [{"role": "user", "content": [PICTURE, "What?", SOUND, {"type": "text", "text": " And"}, PICTURE]}]
PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
BOTH = (  # as Gemma's: text, or parts
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'image' %}<start_of_image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
GEMMA = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")


def prompt(tokenizer: Tokenizer, messages: Any, kinds: tuple[str, ...] = ("image", "audio")) -> ChatPrompt:
    marks = {kind: find_mark(tokenizer, kind, None, {}) for kind in kinds}
    return chat_prompt(tokenizer, messages, 200, marks=marks, model="it.pte")


def spelled(tokenizer: Tokenizer, made: ChatPrompt) -> str:
    """The ids as text, with {n} for media."""
    return "".join(f"{{{-1 - id}}}" if id < 0 else tokenizer.decode([id], special=True) for id in made.ids)


@pytest.mark.parametrize(("template", "start"), [(PARTS, "<s>user: "), (PLAIN, "user: ")])
def test_media_stand_where_the_message_has_them(tmp_path: Path, template: str, start: str) -> None:
    """Whether the template looks into parts or not."""
    tokenizer = media_tokenizer(tmp_path, template)
    made = prompt(tokenizer, ASKED)
    assert spelled(tokenizer, made).startswith(f"{start}{{0}}What?{{1}} And{{2}}\n")
    assert made.media == [PICTURE, SOUND, PICTURE]


def test_text_is_given_to_a_template_as_it_takes_it(tmp_path: Path) -> None:
    for template in (PARTS, PLAIN):
        tokenizer = media_tokenizer(tmp_path, template)
        for content in ("Hello", ["Hel", "lo"], [{"type": "text", "text": "Hello"}]):
            made = prompt(tokenizer, [{"role": "user", "content": content}])
            assert "user: Hello\n" in spelled(tokenizer, made) and not made.media


def test_gemmas_mark_becomes_three_tokens(tmp_path: Path) -> None:
    tokenizer = media_tokenizer(tmp_path, BOTH, GEMMA)
    made = prompt(tokenizer, [{"role": "user", "content": ["See", PICTURE, "there"]}], ("image",))
    assert spelled(tokenizer, made) == "See\n\n<start_of_image>{0}<end_of_image>\n\nthere"


def test_marks_are_found_or_named(tmp_path: Path) -> None:
    tokenizer = media_tokenizer(tmp_path, marks=("<|image|>", "<seen>"))
    assert find_mark(tokenizer, "image", None, {}) == MediaMark("<|image|>", "<|image|>", "<|image|>")
    assert find_mark(tokenizer, "image", "<seen>", {}) == MediaMark("<seen>", "<seen>", "<seen>")
    assert find_mark(tokenizer, "audio", None, {"audio_token_id": 95}) == MediaMark("<seen>", "<seen>", "<seen>")
    assert find_mark(tokenizer, "audio", None, {"audio_token_id": 96}) is None
    with pytest.raises(InputError, match="'<no>' for image, which is no token"):
        find_mark(tokenizer, "image", "<no>", {})


@pytest.mark.parametrize(
    ("content", "kinds", "said"),
    [
        ([PICTURE, "?"], (), "^it.pte takes text only: it has no encoder for images$"),
        ([SOUND, "?"], ("image",), "^it.pte takes text and image only: it has no encoder for audio$"),
        ([PICTURE, "<image>"], ("image",), "the prompt has <image> 2 times, for 1 part of image"),
        ([5], ("image",), "^part 1 of message 1 must be text, an image or audio, not 5$"),
        (5, ("image",), "^message 1 must be text, an image or audio, not 5$"),
        ([{"type": "video"}], ("image",), "part 1 of message 1 is of type 'video'"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(tmp_path: Path, content: Any, kinds: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        prompt(media_tokenizer(tmp_path, PLAIN), [{"role": "user", "content": content}], kinds)


def test_a_model_whose_mark_is_not_known_says_so(tmp_path: Path) -> None:
    tokenizer = media_tokenizer(tmp_path, PLAIN, ("<seen>",))
    with pytest.raises(InputError, match=r"no token of it.pte is known to stand for image; name it with media_tokens"):
        prompt(tokenizer, [{"role": "user", "content": [PICTURE]}])
