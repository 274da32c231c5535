"""Models for the server's tests: one that writes what it is told to, and a tokenizer for the random ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np

from hightide.llm.pretokenizers import SPELLING

NORMAL, CONTROL = 1, 3
END = "<|im_end|>"
MARKUP = ("<think>", "</think>")
# The prompt is the messages one after the other; tools are written only so that a template can be seen to have them.
TEMPLATE = (
    "{% if tools %}{% for tool in tools %}[{{ tool.function.name }}]{% endfor %}{% endif %}"
    "{% for message in messages %}{{ message.content }}{% endfor %}"
)


def scripted_model(path: Path, scripts: Mapping[str, Sequence[str]], context: int = 512) -> Path:
    """A GGUF model whose every token decides the next one: a prompt that ends with the special token `<|name|>` is
    answered with the pieces of that script. A piece may stand in one place only; one that ends with ~ is
    repeated for ever."""
    names = [f"<|{name}|>" for name in scripts]
    tokens = [SPELLING[byte] for byte in range(256)] + [END, *MARKUP, *names]  # ids 0 and 1 merge, as some must
    types = [NORMAL] * 256 + [CONTROL] * (len(tokens) - 256)
    follows: dict[int, int] = {}
    for name, pieces in zip(names, scripts.values(), strict=True):
        last = tokens.index(name)
        for piece in pieces:
            follows[last] = _place(piece, tokens, types, set(follows.values()))
            last = follows[last]
        follows[last] = last if pieces[-1].endswith("~") else tokens.index(END)
    tokens.append(tokens[0] + tokens[1])
    types.append(NORMAL)
    while len(tokens) % 32:
        tokens.append(f"<|unused{len(tokens)}|>")
        types.append(CONTROL)
    _write(path, tokens, types, follows, context)
    return path


def _place(piece: str, tokens: list[str], types: list[int], taken: set[int]) -> int:
    """The token of a piece, added if there is none."""
    # "\udcc3" is the byte 0xc3, part of a character.
    spelled = piece if piece in MARKUP else "".join(SPELLING[byte] for byte in piece.encode("utf-8", "surrogateescape"))
    if spelled not in tokens:
        tokens.append(spelled)
        types.append(NORMAL)
    token = tokens.index(spelled)
    assert token not in taken, f"{piece!r} stands in two places"
    return token


def _write(path: Path, tokens: list[str], types: list[int], follows: Mapping[int, int], context: int) -> None:
    size = len(tokens)
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_block_count(1)
    w.add_context_length(context)
    w.add_embedding_length(size)
    w.add_feed_forward_length(32)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_key_length(16)
    w.add_value_length(16)
    w.add_rope_dimension_count(16)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    w.add_eos_token_id(tokens.index(END))
    w.add_chat_template(TEMPLATE)
    output = np.zeros((size, size), np.float32)
    for token in range(size):
        output[follows.get(token, tokens.index(END)), token] = 4.0
    ones, layer = np.ones(size, np.float32), "blk.0"
    weights = {
        "token_embd.weight": np.eye(size, dtype=np.float32),
        "output.weight": output,
        "output_norm.weight": ones,
        f"{layer}.attn_norm.weight": ones,
        f"{layer}.ffn_norm.weight": ones,
        f"{layer}.attn_q.weight": np.zeros((32, size), np.float32),
        f"{layer}.attn_k.weight": np.zeros((16, size), np.float32),
        f"{layer}.attn_v.weight": np.zeros((16, size), np.float32),
        f"{layer}.attn_output.weight": np.zeros((size, 32), np.float32),
        f"{layer}.ffn_gate.weight": np.zeros((32, size), np.float32),
        f"{layer}.ffn_up.weight": np.zeros((32, size), np.float32),
        f"{layer}.ffn_down.weight": np.zeros((size, 32), np.float32),
    }
    for name, data in weights.items():
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def letters_tokenizer(path: Path, size: int = 131) -> Path:
    """A tokenizer.json for the random models of tests/models: a token per ASCII character, and an end token."""
    letters = [SPELLING[byte] for byte in (10, *range(32, 127))]
    vocabulary = {token: n for n, token in enumerate([END, "<|im_start|>", *letters])}
    for n in range(len(vocabulary), size):
        vocabulary[f"x{n}"] = n
    special = [
        {"id": n, "content": token, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for n, token in enumerate([END, "<|im_start|>"])
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    fields = {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    path.write_text(json.dumps(fields))
    return path
