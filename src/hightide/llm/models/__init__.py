"""One file per architecture, named as GGUF names it: `llama.py` builds `general.architecture: llama`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from hightide.errors import InputError, ProgramError, UnsupportedError
from hightide.formats.checks import nearest
from hightide.formats.gguf import GgufFile
from hightide.formats.lora import LoraAdapter
from hightide.graph.graph import Graph
from hightide.graph.values import TensorValue
from hightide.llm.models.encoder_builder import EncoderBuilder
from hightide.llm.models.model_builder import ModelBuilder

ARCHITECTURES = (
    "llama",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3n",
    "phi2",
    "phi3",
    "mistral3",
    "granite",
    "olmo2",
    "smollm3",
    "glm4",
    "command-r",
    "cohere2",
    "stablelm",
    "starcoder2",
    "gpt2",
    "gptneox",
    "falcon",
    "lfm2",
    "lfm2moe",
    "qwen2moe",
    "qwen3moe",
    "gpt-oss",
    "granitemoe",
    "deepseek2",
)
ENCODERS = ("bert", "nomic-bert", "modern-bert")


def build_graph(
    file: GgufFile, context: int, max_tokens: int, headless: bool = False, adapters: Sequence[LoraAdapter] = ()
) -> Graph:
    """The decoder of a GGUF file: (tokens, input_pos, keep, settings) -> (logits, ids).

    `adapters` are those that rows may have; then `adapted` and `strengths` are inputs as well.
    `headless`: vectors [1, keep, width] stand in for the logits, as embeddings are made of them.
    """
    if is_encoder(file):
        raise UnsupportedError(f"{file.path} is an encoder: it gives embeddings (hightide.Embedder), not answers")
    if file.architecture not in ARCHITECTURES:
        every = (*ARCHITECTURES, *ENCODERS)
        known, close = ", ".join(every), nearest(file.architecture, every)
        kind = file.architecture or "nameless"
        raise UnsupportedError(f"{file.path} is a {kind} model; {known} are supported{close}")
    return _built(file, lambda: ModelBuilder(file, context, max_tokens, headless=headless, adapters=adapters))


def is_encoder(file: GgufFile) -> bool:
    """Whether every token of a text sees all others: it gives vectors, and cannot go on with a text."""
    return file.architecture in ENCODERS


def build_encoder(file: GgufFile, context: int, rows: int, sequences: int) -> Graph:
    """The encoder of a GGUF file: ENCODER_INPUTS -> vectors; see `encoder_builder.py`."""
    return _built(file, lambda: EncoderBuilder(file, context, rows, sequences))


def _built(file: GgufFile, begin: Callable[[], ModelBuilder]) -> Graph:
    try:
        builder = begin()
        return builder.finish(build_of(file.architecture)(builder))
    except InputError as error:  # an op refuses the dims of its weights
        raise ProgramError(f"the weights of {file.path} do not fit together: {error}") from None


def build_of(architecture: str) -> Callable[[ModelBuilder], TensorValue]:
    """The function that builds one of ARCHITECTURES; Python's modules have no "-" in their names."""
    build: Callable[[ModelBuilder], TensorValue] = import_module(
        f"hightide.llm.models.{architecture.replace('-', '_')}"
    ).build
    return build
