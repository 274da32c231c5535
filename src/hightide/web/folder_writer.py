"""The files of an export: plans for every kind of adapter, known answers, weights, and a manifest."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from hightide.errors import InputError, UnsupportedError
from hightide.fuse.half_storage import held
from hightide.fuse.large_constants import split_large
from hightide.graph.graph import Graph
from hightide.graph.values import Dims
from hightide.ops.choices import Choices
from hightide.planning.levels import InputSpec, graph_inputs
from hightide.planning.planner import Planner
from hightide.runtime.build import fused
from hightide.web.known_answers import KnownAnswers
from hightide.web.session_tables import Data, SharedTables, session_tables
from hightide.web.site_files import copy_engine, copy_page
from hightide.web.variants import MAX_BINDING, Variant, variants
from hightide.web.weight_shards import WeightShards

FORMAT = 1
KERNELS, PLAN, CHECKS, ANSWERS = "kernels.json.bin", "plan.json", "checks.json", "checks.bin"
MANIFEST = "manifest.json"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class WebGraph:
    """A graph to be exported, at these levels: the dims of all inputs, for each."""

    graph: Graph
    dynamic: Sequence[bool]
    names: Sequence[str]
    levels: Sequence[Sequence[Dims]]
    decoder: bool = False  # where there are halves, its KV caches are held as such
    fed: Collection[str] = ()  # inputs that are written on the GPU alone, by name

    @property
    def specs(self) -> list[InputSpec]:
        return graph_inputs(self.graph, self.dynamic, self.names)


@dataclass
class FolderWriter:
    """Collects what the sessions of all variants share, then writes the folder."""

    shared: SharedTables = field(default_factory=SharedTables)
    weights: WeightShards = field(default_factory=WeightShards)
    plans: list[Data] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = KnownAnswers(self.shared)

    def add(self, made: WebGraph, tell: Progress) -> None:
        graph = fused(made.graph)
        for variant in variants():
            tell(f"planning for {variant.name}")
            planner = web_planner(graph, variant, made.decoder)
            tables = session_tables(planner, made.specs, made.levels, self.shared, made.fed)
            _check_limits(variant, self.shared, tables.data)
            constants = [(buffer, self.weights.add(value)) for buffer, value in tables.constants]
            self.plans.append(
                {
                    "name": variant.name,
                    "needs": variant.needs,
                    "session": tables.data,
                    "constants": [[buffer, *at] for buffer, at in constants if at is not None],
                    "checks": self.answers.of(planner, tables.plans),
                }
            )

    def write(self, folder: Path, about: Data, page: bool, texts: Mapping[str, str], tell: Progress) -> Data:
        """Everything, the manifest last; `about` goes into it. `texts` are more files, by name."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in (folder / MANIFEST, *folder.glob("weights-*.bin")):
            old.unlink(missing_ok=True)
        tell("writing weights")
        shards = self.weights.write(folder)
        kernels = {"kernels": self.shared.kernels, "params": self.shared.params}
        (folder / KERNELS).write_bytes(gzip.compress(_json(kernels), mtime=0))  # a fifteenth of the text
        _write_json(folder / PLAN, {"variants": self.plans})
        _write_json(folder / CHECKS, {"checks": self.answers.checks})
        (folder / ANSWERS).write_bytes(self.answers.blobs.data)
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
        files = {name: _described(folder / name) for name in (KERNELS, PLAN, CHECKS, ANSWERS, *texts)}
        parts = [*copy_engine(folder), *(copy_page(folder) if page else ())]
        manifest = {"format": FORMAT, **about, "files": files, "weights": shards, "page": parts}
        _write_json(folder / MANIFEST, manifest)
        return manifest


def check_folder(folder: Path) -> None:
    """InputError for a folder that holds other things than an export."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise InputError(f"{folder} has other files in it; name an empty folder, or one that was made by this command")


def web_planner(graph: Graph, variant: Variant, decoder: bool) -> Planner:
    """Plans a fused graph for a kind of adapter, with no more than WebGPU guarantees."""
    traits = variant.traits
    ready = split_large(held(graph, traits, True, decoder and traits.half_caches), MAX_BINDING)
    return Planner(ready, scratch_limit=MAX_BINDING, choices=Choices(traits))


def _described(file: Path) -> Data:
    data = file.read_bytes()
    return {"bytes": len(data), "sha256": sha256(data).hexdigest()}


def _json(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _write_json(file: Path, data: Any) -> None:
    file.write_bytes(_json(data))


def _check_limits(variant: Variant, shared: SharedTables, session: Data) -> None:
    """UnsupportedError for what a browser may refuse."""
    most = variant.traits.storage_buffers
    for name in {group[0] for group in session["groups"]}:
        kernel = shared.kernels[name]
        if kernel["reads"] + kernel["writes"] > most:
            bound = kernel["reads"] + kernel["writes"]
            raise UnsupportedError(f"kernel {kernel['name']} binds {bound} buffers; browsers guarantee {most}")
    if any(size > MAX_BINDING for size in session["buffers"]):
        raise UnsupportedError(f"a tensor needs {max(session['buffers'])} bytes; browsers guarantee {MAX_BINDING}")
