"""One file per architecture, named as GGUF names it: `llama.py` builds `general.architecture: llama`."""

from __future__ import annotations

from importlib import import_module

from hightide.errors import InputError, ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile
from hightide.graph.graph import Graph
from hightide.llm.models.model_builder import ModelBuilder

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3", "phi3")


def build_graph(file: GgufFile, context: int, max_tokens: int, headless: bool = False) -> Graph:
    """The decoder of a GGUF file: (tokens, input_pos, keep, settings) -> (logits, ids).

    `headless`: vectors [1, keep, width] stand in for the logits, as embeddings are made of them.
    """
    if file.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedError(f"{file.path} is a {file.architecture or 'nameless'} model; {known} are supported")
    try:
        builder = ModelBuilder(file, context, max_tokens, headless=headless)
        logits = import_module(f"hightide.llm.models.{file.architecture}").build(builder)
        return builder.finish(logits)
    except InputError as error:  # an op refuses the dims of its weights
        raise ProgramError(f"the weights of {file.path} do not fit together: {error}") from None
