"""A tokenizer for the page: tokenizer.json, and what that leaves out."""

from __future__ import annotations

import json
from typing import Any

from hightide.llm.tokenizer import Tokenizer
from hightide.web.session_tables import Data

TOKENIZER = "tokenizer.json"


def tokenizer_text(tokenizer: Tokenizer) -> str:
    """tokenizer.json, in words that the library of the page understands as the one in Python does."""
    data = json.loads(tokenizer.backend.to_str())
    return json.dumps({**data, "normalizer": _rewritten(data["normalizer"])}, ensure_ascii=False, separators=(",", ":"))


def conventions(tokenizer: Tokenizer) -> Data:
    """What tokenizer.json does not say."""
    return {
        "file": TOKENIZER,
        "byte_level": tokenizer.byte_level,
        "control": sorted(tokenizer.control),
        "literal": sorted(tokenizer.literal),
        "bos": tokenizer.bos_id,
        "ends": list(tokenizer.eos_ids),
        "add_bos": tokenizer.add_bos,
        "space_prefix": tokenizer.space_prefix,
        "template": tokenizer.chat_template,
    }


def _rewritten(normalizer: Any) -> Any:
    """`Prepend` leaves an empty text alone, which the page's library does not; a pattern says it for both."""
    if isinstance(normalizer, list):
        return [_rewritten(one) for one in normalizer]
    if not isinstance(normalizer, dict):
        return normalizer
    if normalizer.get("type") == "Prepend":
        start = {"Regex": r"(?<![\s\S])(?=[\s\S])"}
        return {"type": "Replace", "pattern": start, "content": normalizer["prepend"]}
    return {name: _rewritten(value) for name, value in normalizer.items()}
