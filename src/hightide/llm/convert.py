"""A model as a GGUF file: a folder's fields and weights, and its tokenizer in GGUF's words."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hightide.errors import InputError, UnsupportedError, reading
from hightide.formats.gguf import GgufFile
from hightide.formats.gguf_writer import write_gguf
from hightide.formats.model_file import is_model, read_model
from hightide.formats.quantizers import checked_kind, quantized
from hightide.formats.safetensors import read_json
from hightide.llm.pretokenizers import (
    BYTE,
    BYTE_TOKEN,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)
from hightide.llm.text_cuts import GPT2, KINDS
from hightide.llm.tokenizer import Tokenizer

QUANTIZATION_VERSION = 2  # of ggml's block types
SAMPLES = (  # that both tokenizers must cut alike
    "Hello, world! It's 12345 o'clock;  the café isn't open\n\n\tdef f(x): return x**2 # ok",
    " Grüße aus München  😀👍🏽 你好，世界 привет мир שלום ١٢٣",
    "camelCaseWords DON'T stop... <b>bold</b> https://a.b/c?d=e&f=1_000 \r\n  \n end ",
)


def convert_model(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    quantize: str | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> None:
    """Writes a folder (or a GGUF file) as a GGUF file; nothing is left of a file that could not be finished."""
    model, out, kind = Path(model), Path(out), checked_kind(quantize)
    if out.suffix != ".gguf" or not out.parent.is_dir():
        raise InputError(f"{out} must end in .gguf and be in a folder that exists")
    if not is_model(model):
        raise InputError(f"{model} is neither a Hugging Face folder nor a GGUF file")
    with reading(model):
        file = read_with_tokenizer(model)
        metadata = {key: value for key, value in file.metadata.items() if not key.startswith("split.")}
        if kind is not None:
            file = quantized(file, kind)
            metadata["general.quantization_version"] = QUANTIZATION_VERSION
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            write_gguf(replace(file, metadata=metadata), Path(folder) / out.name, tell)
            os.replace(Path(folder) / out.name, out)


def read_with_tokenizer(model: str | os.PathLike[str]) -> GgufFile:
    """A model whose fields say its tokenizer, also where that is another file of its folder."""
    file, tokenizer = read_model(model), Path(model) / "tokenizer.json"
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or not tokenizer.is_file():
        return file
    return replace(file, metadata={**file.metadata, **tokenizer_fields(tokenizer, embedding.dims[0])})


def tokenizer_fields(path: Path, rows: int) -> dict[str, Any]:
    """The fields of GGUF that say what a `tokenizer.json` does; `rows` are those of the embedding.

    UnsupportedError if GGUF cannot say it: some texts are encoded with what was said, and must be the same.
    """
    own = Tokenizer.from_file(path)
    if own.vocab_size > rows:
        raise UnsupportedError(f"{path} has {own.vocab_size} tokens, but the model has {rows}")
    content = read_json(path)
    described = content["model"]
    tokens = [own.token(n) or f"[PAD{n}]" for n in range(own.vocab_size)]
    tokens += [f"[PAD{n}]" for n in range(own.vocab_size, rows)]
    fields: dict[str, Any] = {
        "tokens": tokens,
        "token_type": [_type(own, described.get("unk_token"), n, token) for n, token in enumerate(tokens)],
        "add_bos_token": own.add_bos,
        "add_eos_token": own.closing_id is not None,
        "bos_token_id": own.bos_id,
        "eos_token_id": own.eos_ids[0] if own.eos_ids else None,
    }
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in described.get("merges", ())]
    if described.get("type") == "WordPiece":
        fields |= _wordpiece_fields(content, own)
    elif own.byte_level:
        fields |= {"model": "gpt2", "pre": _pre(path, content), "merges": merges}
    else:
        ranks: dict[str, int] = {}
        for rank, merge in enumerate(merges):
            ranks.setdefault(merge.replace(" ", ""), rank)
        scores = [-float(ranks.get(token, len(merges))) for token in tokens]
        fields |= {"model": "llama", "scores": scores, "add_space_prefix": own.space_prefix}
    named = {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}
    if own.chat_template is not None:
        named["tokenizer.chat_template"] = own.chat_template
    said = Tokenizer.from_gguf(named)
    if any(said.encode_whole(text) != own.encode_whole(text) for text in SAMPLES):
        raise UnsupportedError(f"{path} cuts text in a way that GGUF has no words for")
    return named


def _wordpiece_fields(content: dict[str, Any], own: Tokenizer) -> dict[str, Any]:
    """Those of BERT, whose text is closed by a separator."""
    normalizer = content.get("normalizer") or {}
    return {
        "model": "bert",
        "unknown_token_id": own.backend.token_to_id(content["model"]["unk_token"]),
        "cls_token_id": own.bos_id,
        "seperator_token_id": own.closing_id,  # as GGUF spells it
        "normalizer.lowercase": normalizer.get("lowercase"),
        "normalizer.strip_accents": normalizer.get("strip_accents"),
        "add_eos_token": None,
    }


def _type(own: Tokenizer, unknown: Any, token_id: int, token: str) -> int:
    if token_id >= own.vocab_size or token == f"[PAD{token_id}]":
        return UNUSED
    if token == unknown and not own.byte_level:
        return UNKNOWN
    if token_id in own.control:
        return CONTROL
    if token_id in own.literal:
        return USER_DEFINED
    return BYTE if not own.byte_level and BYTE_TOKEN.fullmatch(token) else NORMAL


def _pre(path: Path, content: dict[str, Any]) -> str:
    """GGUF's name for how a byte-level tokenizer cuts text into words."""
    given = content.get("pre_tokenizer") or {}
    cuts = given.get("pretokenizers", [given])
    patterns: list[str] = []
    for cut in cuts:
        match cut:
            case {"type": "Split", "pattern": {"Regex": pattern}}:
                patterns.append(pattern)
            case {"type": "Digits", "individual_digits": True}:
                patterns.append(r"\p{N}")
            case {"type": "ByteLevel", "use_regex": False}:
                pass
            case {"type": "ByteLevel"}:
                patterns.append(GPT2)
            case _:
                raise UnsupportedError(f"{path} cuts text with {cut.get('type')}, which GGUF has no name for")
    whole = bool(content["model"].get("ignore_merges"))
    alike = [kind for kind, pre in KINDS.items() if pre.patterns == tuple(patterns)]
    named = [kind for kind in alike if KINDS[kind].ignore_merges == whole] or alike
    if not named:
        raise UnsupportedError(f"{path} cuts text by an expression that GGUF has no name for")
    return named[0]
