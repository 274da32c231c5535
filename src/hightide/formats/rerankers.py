"""Decoders that say whether a document answers a query: Qwen3-Reranker as GGUF has it.

Its folder is one of a model that gives answers; only its name tells. What it says of a document is how much likelier
its next token is "yes" than "no", so these two rows of the output matrix are its head.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hightide.errors import UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.formats.model_tensors import reordered
from hightide.formats.safetensors import read_json

NAME = "qwen3-reranker"
RANK = 4  # the pooling type
LABELS = ["yes", "no"]
TEMPLATE_FIELD = "tokenizer.chat_template.rerank"
# As the model was trained: the instruction is its default.
TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def with_rank_head(file: GgufFile) -> GgufFile:
    """The file of a folder with the head, fields and template of a reranker, if it is one."""
    # The Hub's cache has the name of a model some folders above its files.
    names = [file.path.name, *(part for part in file.path.parts if part.startswith("models--"))]
    if file.architecture != "qwen3" or not any(NAME in name.lower() for name in names):
        return file
    path, matrix = (
        file.path / "tokenizer.json",
        file.tensors.get("output.weight") or file.tensors.get("token_embd.weight"),
    )
    described = read_json(path).get("model") if path.is_file() else None
    ids = described.get("vocab") if isinstance(described, dict) else None
    rows = [ids.get(label) for label in LABELS] if isinstance(ids, dict) else [None]
    if matrix is None or len(matrix.dims) != 2 or not all(type(n) is int and 0 <= n < matrix.dims[0] for n in rows):
        raise UnsupportedError(f"{path} has no tokens {' and '.join(LABELS)}, which a reranker ranks by")
    head = replace(reordered(matrix, np.array(rows)), name="cls.output.weight")
    fields = {"qwen3.pooling_type": RANK, "qwen3.classifier.output_labels": LABELS, TEMPLATE_FIELD: TEMPLATE}
    return replace(file, metadata=file.metadata | fields, tensors=file.tensors | {head.name: head})
