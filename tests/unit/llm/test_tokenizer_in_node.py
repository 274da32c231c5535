"""The page's tokenizer gives the ids and texts of the one in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from odd_strings import odd_strings
from running_node import node
from vocabularies import goldens, sentencepiece_file, smollm2, tiktoken_file

from hightide.llm.chat_prompt import chat_prompt
from hightide.llm.text_stream import TextStream
from hightide.llm.tokenizer import Tokenizer
from hightide.web.tokenizer_file import conventions, tokenizer_text


def tokenizer(name: str, folder: Path) -> Tokenizer:
    if name == "smollm2":
        return smollm2()
    file = tiktoken_file(folder) if name == "tiktoken" else sentencepiece_file(name, folder)
    return Tokenizer.from_file(file)


ENCODE = """
import fs from "fs";
import { TextStream, Tokenizer } from "ENGINE/tokenizer.js";
const { json, conventions, texts, ids, stops, chats } = JSON.parse(fs.readFileSync(process.argv[2]));
const tokenizer = new Tokenizer(JSON.parse(json), conventions);
const spelled = (numbers, stop) => {
    const stream = new TextStream(tokenizer, stop);
    const text = numbers.map((id) => stream.feed(id)).join("") + stream.flush();
    return [text, stream.stopped];
};
console.log(JSON.stringify({
    plain: texts.map((text) => tokenizer.encode(text)),
    special: texts.map((text) => tokenizer.encode(text, { special: true })),
    texts: ids.map((numbers) => spelled(numbers, [])),
    stopped: ids.map((numbers) => spelled(numbers, stops)),
    chats: chats.map((messages) => tokenizer.chat(messages)),
}));
"""
STOPS = ["e ", "\n\n", "th", "the"]
CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<|im_end|> 1 + 1?"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": " c "}],
]


@pytest.mark.parametrize("name", ["smollm2", "tiktoken", *goldens()["sentencepiece"]])
def test_tokens_and_text(name: str, tmp_path: Path) -> None:
    made, texts = tokenizer(name, tmp_path), odd_strings()
    ids = [made.encode(text) for text in texts]
    chats = CHATS if made.chat_template else []
    given = {"json": tokenizer_text(made), "conventions": conventions(made)}
    got = node(ENCODE, {**given, "texts": texts, "ids": ids, "stops": STOPS, "chats": chats}, tmp_path)
    assert got["plain"] == ids
    assert got["special"] == [made.encode(text, special=True) for text in texts]
    assert got["texts"] == [[made.decode(numbers), False] for numbers in ids]
    assert got["stopped"] == [_stopped(made, numbers) for numbers in ids]
    assert got["chats"] == [chat_prompt(made, messages, 2048).ids for messages in chats]


def _stopped(tokenizer: Tokenizer, ids: list[int]) -> list[Any]:
    stream = TextStream(tokenizer, STOPS)
    text = "".join(map(stream.feed, ids)) + stream.flush()
    return [text, stream.stopped is not None]


def test_the_exported_tokenizer_is_the_same_in_python(tmp_path: Path) -> None:
    made = tokenizer("collapsing", tmp_path)
    read = tokenizers.Tokenizer.from_str(tokenizer_text(made))
    read.encode_special_tokens = True  # their names are text
    for text in odd_strings():
        assert read.encode(text, add_special_tokens=False).ids == made.encode(text)
