"""Programs of `token_embedding`, `text_decoder` and encoders of images and audio, as a decoder of tokens.

The two methods of text become one graph (`fuse/with_embedding.py`), so that embeddings stay on the device; what an
encoder gives is copied into an input of it there. Where a method is in several parts, they are called one by one.
"""

from __future__ import annotations

import warnings

from hightide.errors import InputError, UnsupportedError
from hightide.fuse.ragged import MEDIA, NotRaggedError
from hightide.fuse.with_embedding import with_embedding
from hightide.graph.graph import Graph
from hightide.llm.decoder import Decoder
from hightide.llm.media import Media
from hightide.llm.ragged_model import Placement, ragged_decoder
from hightide.llm.taking_turns import EmbeddingPlace, RereadPlace, TurnsDecoder, graph_in_turns
from hightide.pte.program import Program
from hightide.runtime.build import SessionOptions, build_session

EMBEDDING, DECODER = "token_embedding", "text_decoder"
MOST_SLOTS = 4  # images and audio that a step can have rows of; each takes device memory


def is_multimodal(program: Program) -> bool:
    return EMBEDDING in program.methods and DECODER in program.methods


def open_multimodal(program: Program, context: int | None, placement: Placement) -> tuple[Decoder, Media]:
    """Its decoder, and what prepares images and audio for it."""
    name = program.file.path.name
    context, longest, width, vocabulary = _sizes(program, context)
    media = Media(program, vocabulary, width)
    slots = min(placement.sequences, MOST_SLOTS)
    embedding, decoder = (program.single_graph(method) for method in (EMBEDDING, DECODER))
    turns = {"context": context, "sequences": placement.sequences, "rows": longest, "vocab": vocabulary}
    if embedding is None or decoder is None:
        if placement.kv == "f16":
            raise UnsupportedError("KV caches in f16 need a program whose text_decoder is one graph")
        place = RereadPlace(EmbeddingPlace(program.method(EMBEDDING), program.method(DECODER), media), turns["rows"])
        sessions = program.method(DECODER).sessions
        device = sessions[0].name if sessions else "NumPy"
        return TurnsDecoder(place, keep=1, device=device, media=media, **turns), media
    graph = with_embedding(embedding, decoder, slots * media.stride)
    try:
        return ragged_decoder(graph, program.gpu, placement, context, longest, media=media), media
    except NotRaggedError as error:
        if placement.sequences > 1:
            warnings.warn(f"{name} serves its sequences in turns: {error}", stacklevel=5)
    return _in_turns(program, graph, placement, media, turns), media


def _in_turns(
    program: Program, graph: Graph, placement: Placement, media: Media, turns: dict[str, int]
) -> TurnsDecoder:
    info = program.methods[DECODER]
    session = build_session(
        graph,
        program.gpu,
        [info.inputs[0].dynamic, info.inputs[1].dynamic, False],
        ["tokens", "input_pos", MEDIA],
        SessionOptions(placement.kv, program.routes),
        placement.progress,
    )
    keep = turns["rows"] if len(info.outputs[0].dims) == 3 else 1  # logits of every token, or of the last one only
    return graph_in_turns(graph, session, media, keep=keep, **turns)


def _sizes(program: Program, context: int | None) -> tuple[int, int, int, int]:
    """(context, most tokens of a call, width of embeddings, vocabulary)"""
    name = program.file.path.name
    embedding, decoder = program.methods[EMBEDDING], program.methods[DECODER]
    tokens, embedded = embedding.inputs[:1], decoder.inputs[:1]
    fits = len(embedding.inputs) == 1 and len(decoder.inputs) == 2 and embedding.outputs and decoder.outputs
    if not fits or len(tokens[0].dims) != 2 or len(embedded[0].dims) != 3 or len(decoder.inputs[1].dims) != 1:
        raise UnsupportedError(
            f"{name} is not a multimodal model: {EMBEDDING}{embedding!r} must take tokens [1, S], "
            f"and {DECODER}{decoder!r} embeddings [1, S, width] and a position"
        )
    longest = min(tokens[0].dims[1], embedded[0].dims[1])
    most = int(program.metadata.get("get_max_context_len", program.metadata.get("get_max_seq_len", longest)))
    context = most if context is None else context
    if not 1 <= context <= most:
        raise InputError(f"{name} has a context of {most} tokens; it cannot use {context}")
    return context, longest, embedded[0].dims[2], decoder.outputs[0].dims[-1]
