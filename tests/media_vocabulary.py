"""A tokenizer for the small models that see and hear: characters, and tokens that stand for images and audio."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from hightide.llm.pretokenizers import SPELLING
from hightide.llm.tokenizer import Tokenizer

SIZE = 96
CHARACTERS = "\n !,.:?abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MARKS = ("[AUDIO]", "<image>")
# A template that looks into the parts of a message, and takes no plain text, as Llava's does.
PARTS = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: "
    "{% for part in message.content %}{% if part['type'] == 'image' %}<image>{% elif part['type'] == 'audio' %}[AUDIO]"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{{ '\n' }}{% endfor %}assistant:"
)


def tokenizer_file(folder: Path, template: str | None = None, marks: Sequence[str] = MARKS) -> Path:
    """A tokenizer.json with its template beside it; the marks are its last tokens."""
    special = ["<unk>", "<s>", "</s>"]
    tokens = [*special, *(SPELLING[ord(character)] for character in CHARACTERS)]
    tokens += [f"<unused{n}>" for n in range(SIZE - len(tokens) - len(marks))] + list(marks)
    made = tokenizers.Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*special, *marks])
    path = folder / "tokenizer.json"
    made.save(str(path))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return path


def media_tokenizer(folder: Path, template: str | None = None, marks: Sequence[str] = MARKS) -> Tokenizer:
    return Tokenizer.from_file(tokenizer_file(folder, template, marks))
