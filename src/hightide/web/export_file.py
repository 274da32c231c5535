"""From a file to a folder that a browser runs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hightide.errors import HightideError, InputError, UnsupportedError, reading
from hightide.formats.instructions import KernelCall
from hightide.formats.model_file import is_model, read_model
from hightide.formats.source_file import plain_name
from hightide.fuse.ragged import RAGGED_DYNAMIC, RAGGED_INPUTS, NotRaggedError, RaggedSizes, ragged
from hightide.graph.graph import Graph
from hightide.graph.values import Dims, TensorValue
from hightide.llm.model import program_ends, program_sizes
from hightide.llm.models import build_graph
from hightide.llm.models.model_builder import choose_context
from hightide.llm.ragged_model import Placement, level_dims, ragged_sizes
from hightide.llm.tokenizer import find_tokenizer
from hightide.ops.pages.work_lists import TILE
from hightide.ops.sampling.sampling import SETTINGS
from hightide.planning.levels import MaxElements
from hightide.planning.planner import Planner
from hightide.pte.program import Program, load
from hightide.tools.levels.varying import Symbol, dims_at
from hightide.tools.opened_file import method_parts
from hightide.web.folder_writer import FolderWriter, Progress, WebGraph, check_folder
from hightide.web.session_tables import Data
from hightide.web.tokenizer_file import TOKENIZER, conventions, tokenizer_text
from hightide.web.variants import MAX_BINDING

CHUNK = 128  # tokens of a step, at most
DRAFT = 7  # tokens that a step checks beyond the newest, at most
MAX_LEVELS = 4096


def export_model(
    path: str | os.PathLike[str],
    folder: Path,
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    context: int | None = None,
    chunk: int = CHUNK,
    tell: Progress = lambda _: None,
) -> Data:
    """A GGUF model, or a `.pte` language model; returns the manifest."""
    check_folder(folder)
    metadata: Any = None
    ends: set[int] = set()
    if is_model(path):
        with reading(path):
            file = read_model(path)
            context = choose_context(file, context)
            graph = build_graph(file, context, min(chunk, context))
        metadata, rows = file.metadata, chunk
    else:
        program = load(path, device="cpu")
        context, rows, cached = program_sizes(program, context)
        if not cached:
            raise UnsupportedError(f"{Path(path).name} has no KV cache: export it with --program")
        graph, rows, ends = single_graph(program, "forward"), min(rows, chunk), program_ends(program)
    sizes = ragged_sizes(graph, context, rows, Placement(), False, MAX_BINDING)
    try:
        made = ragged(graph, sizes)
    except NotRaggedError as error:
        raise UnsupportedError(f"{Path(path).name}: {error}; export it with --program") from None
    found = find_tokenizer(Path(path), tokenizer, metadata)
    levels, words = model_levels(made, sizes), _mask_words(made)
    writer = FolderWriter()
    writer.add(WebGraph(made, RAGGED_DYNAMIC, RAGGED_INPUTS, levels, decoder=True, fed=["chosen"]), tell)
    logits = made.values[made.outputs[0]]
    assert isinstance(logits, TensorValue)
    about = {
        "kind": "model",
        "name": plain_name(path),
        "model": {
            "context": min(context, sizes.pages * sizes.page),
            "chunk": sizes.rows,
            "draft": min(DRAFT, sizes.wanted - 1, sizes.rows - 1),
            "wanted": sizes.wanted,
            "page": sizes.page,
            "table": sizes.table,
            "tile": TILE,
            "settings": SETTINGS,
            "mask_words": words,
            "vocabulary": logits.dims[-1],
            "ends": sorted(ends | set(found.eos_ids if found else ())),
        },
        "tokenizer": None if found is None else conventions(found),
    }
    texts = {} if found is None else {TOKENIZER: tokenizer_text(found)}
    return writer.write(folder, about, found is not None, texts, tell)


def export_program(
    path: str | os.PathLike[str],
    folder: Path,
    *,
    method: str = "forward",
    at: Sequence[str] = (),
    tell: Progress = lambda _: None,
) -> Data:
    """Any method that is one graph; returns the manifest.

    `at` are its levels, such as "S=1..16,T=64"; what one leaves out is at its max. Without any, all that there are.
    """
    check_folder(folder)
    program = load(path, device="cpu")
    if method not in program.methods:
        raise InputError(f"{Path(path).name} has no method {method!r}; it has {', '.join(program.methods)}")
    single_graph(program, method)
    part = method_parts(program, method)[0]
    symbols = [symbol for symbol in part.source.symbols if symbol.places]
    try:
        named = program_levels(symbols, at)
    except InputError as error:
        raise InputError(f"{Path(path).name}: {error}") from None
    levels = _accepted(part.graph, [tuple(dims_at(part.specs, symbols, level)) for level in named])
    writer = FolderWriter()
    writer.add(WebGraph(part.graph, part.dynamic, part.names, levels), tell)
    about = {"kind": "program", "name": Path(path).stem, "method": method}
    return writer.write(folder, about, False, {}, tell)


def single_graph(program: Program, method: str) -> Graph:
    """The graph that is the whole method; UnsupportedError for others, since a browser has no interpreter."""
    graph = program.single_graph(method)
    if graph is not None:
        return graph
    calls = program.file.methods[method].instructions
    others = list(dict.fromkeys(call.op for call in calls if isinstance(call, KernelCall)))
    listed = f" (it calls {', '.join(others)})" if others else ""
    between = f"what it does between its graphs{listed} needs Python"
    raise UnsupportedError(f"{program.file.path.name}: method {method} is not one graph; {between}")


def program_levels(symbols: Sequence[Symbol], at: Sequence[str]) -> list[dict[str, int]]:
    """The levels that are named, or all."""
    most = {symbol.name: symbol.most for symbol in symbols}
    spans = [_spans(text, most) for text in at] or [{name: range(1, size + 1) for name, size in most.items()}]
    count = sum(math.prod(len(span) for span in one.values()) for one in spans)
    if count > MAX_LEVELS:
        varies = ", ".join(f"{name} up to {size}" for name, size in most.items())
        raise InputError(f"{varies} are {count} levels; an export has {MAX_LEVELS} at most: name them with --at")
    levels = [dict(zip(one, sizes, strict=True)) for one in spans for sizes in product(*one.values())]
    return list({tuple(level.items()): level for level in levels}.values())


def _spans(text: str, most: Mapping[str, int]) -> dict[str, range]:
    """`"S=1..16,T=64"` as ranges; what is left out is at its max."""
    spans = {name: range(size, size + 1) for name, size in most.items()}
    for item in filter(None, (item.strip() for item in text.split(","))):
        found = re.fullmatch(r"(\w+)=(\d{1,9})(?:\.\.(\d{1,9}))?", item)
        if found is None:
            raise InputError(f"levels are written as S=1..16,T=64; {item!r} is not NAME=NUMBER or NAME=FIRST..LAST")
        name, first, last = found[1], int(found[2]), int(found[3] or found[2])
        if name not in most or not 1 <= first <= last <= most[name]:
            varies = ", ".join(f"{name} (1 to {size})" for name, size in most.items()) or "nothing"
            raise InputError(f"{item} is no level; what varies: {varies}")
        spans[name] = range(first, last + 1)
    return spans


def model_levels(graph: Graph, sizes: RaggedSizes) -> list[tuple[Dims, ...]]:
    """One sequence: prompts of every length, chunks of longer ones, a decode step, and drafts to be checked."""
    words = _mask_words(graph)

    def level(rows: int, wanted: int) -> tuple[Dims, ...]:
        singles, tiles = (1, 0) if rows == 1 else (0, -(-rows // TILE))
        return level_dims(sizes, words, rows, wanted, singles, tiles)

    drafts = range(2, min(DRAFT + 1, sizes.wanted, sizes.rows) + 1)
    levels = [level(rows, 1) for rows in range(1, sizes.rows + 1)]
    return [*levels, level(sizes.rows, 0), *(level(rows, rows) for rows in drafts)]


def _mask_words(graph: Graph) -> int:
    masks = graph.values[graph.inputs[RAGGED_INPUTS.index("masks")]]
    assert isinstance(masks, TensorValue)
    return masks.dims[1]


def _accepted(graph: Graph, levels: Sequence[tuple[Dims, ...]]) -> list[tuple[Dims, ...]]:
    planner = Planner(graph, dispatch=False)
    accepted = []
    for dims in levels:
        try:
            planner.plan(dims, MaxElements())
        except HightideError:
            continue
        accepted.append(dims)
    return accepted
