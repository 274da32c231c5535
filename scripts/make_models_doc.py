"""Writes docs/models.md: the GGUF architectures that run, from their modules and the small models of the tests."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from hightide.formats.gguf import read_gguf
from hightide.llm.export import HALVES, INTERLEAVED
from hightide.llm.models import ARCHITECTURES, build_of
from hightide.ops.blocks.layout import BLOCK_TYPES

ROOT = Path(__file__).resolve().parents[1]
DOC, MODELS = ROOT / "docs" / "models.md", ROOT / "tests" / "models"
HEAD = """# GGUF models that run

A GGUF file names its architecture in `general.architecture`; `hightide inspect MODEL` prints it. Each of these answers
alone and in batches, on NumPy and on any WebGPU adapter: `hightide chat`, `serve`, `web`, `inspect` and `verify` take
all of them. `scripts/make_models_doc.py` writes this page.

*Checked with* names small random models in `tests/models`. Their logits agree with transformers to 1e-5 of the range in
float64 and 1e-4 on the GPU, whatever the chunks in which a prompt is read, and batches give what each sequence gives
alone. *To `.pte`* says whether [`hightide export`](guide/export.md#gguf-models) writes it as an ExecuTorch program; the
exporter's Llama has no place for what the others do differently.
"""
TAIL = """
Encoders (`bert`, `nomic-bert`, `modern-bert`) give vectors and scores instead of answers: see
[Embeddings and ranking](guide/embeddings.md).

A file that does not run is refused with the architecture, tensor, type or field that is the reason, and the closest
name that would do. A tensor that hightide would not read is a reason, too: without it, the results would be wrong.

See [Add an architecture](howto/add-an-architecture.md) for how to add one.
"""


def main() -> None:
    DOC.write_text(doc_text(), encoding="utf-8", newline="\n")


def doc_text() -> str:
    checked: dict[str, list[str]] = {}
    for path in sorted(MODELS.glob("*.gguf")):
        checked.setdefault(read_gguf(path).architecture, []).append(path.stem)
    lines = [
        "| architecture | models | what sets it apart | checked with | to `.pte` |",
        "| --- | --- | --- | --- | --- |",
        *(_row(name, checked.get(name, [])) for name in ARCHITECTURES),
    ]
    types = f"Weights may be {', '.join(sorted(BLOCK_TYPES))}."
    return "\n".join([HEAD, *lines, "", types, TAIL])


def _row(architecture: str, checked: list[str]) -> str:
    """The first sentence of the module is "models: what sets them apart"."""
    module = sys.modules[build_of(architecture).__module__]
    sentence = " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())
    models, _, apart = sentence.removesuffix(".").partition(": ")
    exported = "yes" if architecture in (*INTERLEAVED, *HALVES) else "–"
    return f"| `{architecture}` | {models} | {apart} | {', '.join(checked)} | {exported} |"


if __name__ == "__main__":
    main()
