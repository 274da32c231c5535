"""Writes word_goldens.json: small vocabularies of BERT's and T5's kinds, and the ids that the references give.

python make_word_goldens.py        with `sentencepiece` and `transformers` installed
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import sentencepiece
from make_goldens import corpus
from odd_strings import odd_strings
from sentencepiece import sentencepiece_model_pb2
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

# Rules of a charsmap: "from<TAB>to" in code points. A ligature, a wide letter, and spaces that are none yet.
RULES = "FB01\t66 69\nFF21\t41\nA0\t20\n3000\t20\n2026\t2E 2E 2E\n"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def unigram(**options: Any) -> dict[str, Any]:
    """A SentencePiece model as the fields of a GGUF file, with the ids of the odd strings."""
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(RULES)
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()),
            model_writer=out,
            model_type="unigram",
            vocab_size=600,
            character_coverage=0.98,
            hard_vocab_limit=False,
            normalization_rule_tsv=rules.name,
            minloglevel=2,
            **options,
        )
    model = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    return {
        "tokens": [piece.piece for piece in model.pieces],
        "scores": [piece.score for piece in model.pieces],
        "token_type": [piece.type for piece in model.pieces],
        "add_space_prefix": model.normalizer_spec.add_dummy_prefix,
        "remove_extra_whitespaces": model.normalizer_spec.remove_extra_whitespaces,
        "unknown_token_id": model.trainer_spec.unk_id,
        "precompiled_charsmap": base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode(),
        "ids": [" ".join(map(str, processor.encode(text))) for text in odd_strings()],
    }


def wordpiece() -> dict[str, Any]:
    """A vocabulary of frequent words and of characters, with the ids of the odd strings, lower-cased and not."""
    words = Counter(word for text in corpus() for word in text.lower().split() if word.isalpha())
    characters = Counter(character for text in corpus() for character in text if not character.isspace())
    frequent = [character for character, _ in characters.most_common(220)]
    inner = [f"##{character}" for character in frequent] + ["##ing", "##er", "##ed", "##th"]
    tokens = list(dict.fromkeys([*SPECIAL, *(word for word, _ in words.most_common(150)), *frequent, *inner]))
    made: dict[str, Any] = {"tokens": tokens}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vocab.txt")
        path.write_text("\n".join(tokens) + "\n")
        for name, lower in (("lower", True), ("cased", False)):
            reference = BertTokenizerLegacy(str(path), do_lower_case=lower)
            pieces = [reference.basic_tokenizer.tokenize(text) for text in odd_strings()]
            made[name] = [
                " ".join(str(tokens.index(p)) for word in line for p in reference.wordpiece_tokenizer.tokenize(word))
                for line in pieces
            ]
    return made


if __name__ == "__main__":
    goldens = {"unigram": unigram(), "bare": unigram(add_dummy_prefix=False, remove_extra_whitespaces=False)}
    made = {**goldens, "wordpiece": wordpiece()}
    Path(__file__).with_name("word_goldens.json").write_text(json.dumps(made, indent=0, ensure_ascii=False) + "\n")
