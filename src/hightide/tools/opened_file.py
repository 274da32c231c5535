"""Any `.pte` or GGUF file, opened for the tools: its parts, each at any level.

A part is one delegate graph of a method, or the decoder of a GGUF model. What varies has a name, so that a level can be
written as `S=17,pos=40` and valid inputs can be made for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from hightide.errors import InputError
from hightide.formats.gguf import GgufFile
from hightide.formats.instructions import DelegateCall
from hightide.formats.model_file import is_model, read_model
from hightide.fuse.half_storage import held
from hightide.fuse.large_constants import split_large
from hightide.graph.graph import Graph
from hightide.graph.symbols import Env
from hightide.graph.values import Dims
from hightide.llm.model import default_chunk
from hightide.llm.models import build_graph
from hightide.llm.models.model_builder import DYNAMIC, INPUTS, choose_context
from hightide.llm.tokenizer import Tokenizer, find_tokenizer
from hightide.ops.choices import Choices
from hightide.planning.levels import InputSpec, graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.pte.program import Program, load
from hightide.runtime.build import SessionOptions, build_session, choose_device, fused, named_device
from hightide.runtime.session import Session
from hightide.tools.levels.level_sources import GraphSource, MethodSource, Source
from hightide.tools.levels.varying import Symbol

PROMPT = 128  # tokens of the prefill that is looked at where no levels are named


def open_file(
    path: str | os.PathLike[str],
    *,
    method: str = "forward",
    device: str | int | None = None,
    context: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    chunk: int | None = None,
    whole: bool = True,
) -> OpenedFile:
    """Opens a file for the tools; nothing is built or sent to a GPU yet.

    `context` is the length of a GGUF model's KV cache (2048, or the model's own if that is shorter), `chunk` the most
    tokens of one call of it (by default what the engine takes on software adapters). `whole=False` leaves the delegates
    of a program as they are, each a part of its own.
    """
    if is_model(path):
        return _open_gguf(read_model(path), named_device(device), context, tokenizer, chunk)
    program = load(path, device="cpu", whole=whole)
    opened = OpenedFile(Path(path), named_device(device), method, program=program, tokenizer_file=tokenizer)
    opened.parts.extend(method_parts(program, method, named_device(device)))
    return opened


@dataclass(eq=False)
class OpenedFile:
    """A file and the parts of one of its methods."""

    path: Path
    device: str | int | None
    method: str
    parts: list[Part] = field(default_factory=list)
    program: Program | None = None  # of a .pte
    gguf: GgufFile | None = None
    tokenizer_file: str | os.PathLike[str] | None = None

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The one that was named, that is in the file, or that lies beside it."""
        return find_tokenizer(self.path, self.tokenizer_file, None if self.gguf is None else self.gguf.metadata)


@dataclass(eq=False)
class Part:
    """One graph: of a delegate, or of a GGUF model's decoder."""

    name: str  # "forward", or "forward/2" where a method has several
    graph: Graph
    dynamic: tuple[bool, ...]  # which inputs may shrink
    names: tuple[str, ...]  # of the inputs
    source: Source
    number: int = 0  # of the delegate
    device: str | int | None = None
    gives: tuple[str, ...] = ()  # the outputs, of one part among others
    decoder: bool = False  # of a GGUF model: on a GPU with halves its KV caches are held as such

    @property
    def symbols(self) -> dict[str, int]:
        """What varies, with its max: {"S": 128, "pos": 2047}."""
        return {symbol.name: symbol.most for symbol in self.source.symbols}

    @property
    def specs(self) -> list[InputSpec]:
        return graph_inputs(self.graph, self.dynamic, self.names)

    def level(self, at: Mapping[str, int]) -> dict[str, int]:
        """A whole level: what `at` leaves out is the max of a dim, and 0 for a position."""
        return complete(self.source.symbols, at, self.name)

    def inputs_at(self, at: Mapping[str, int], seed: int = 0, tokens: Sequence[int] | None = None) -> list[np.ndarray]:
        """Valid inputs at a level, random but for `tokens`, of which the first S are taken (again if they are few)."""
        level = self.level(at)
        with self._about_empty(level):
            return self.source.inputs(self.number, level, seed, tokens)

    def level_at(self, at: Mapping[str, int]) -> tuple[list[Dims], Env]:
        """What decides the plan of a level: the live dims of the inputs, and the integers in them."""
        return self.source.decided(self.number, self.level(at))

    def planner(self, choices: Choices, max_binding: int, fuse: bool = True) -> Planner:
        """Plans it as a session on an adapter with these routes would; nothing is built."""
        traits = choices.traits
        graph = held(fused(self.graph) if fuse else self.graph, traits, None, self.decoder and traits.half_caches)
        return Planner(split_large(graph, max_binding), scratch_limit=max_binding, choices=choices)

    def plan_at(self, planner: Planner, at: Mapping[str, int]) -> tuple[Plan, Env]:
        """The plan of a level, checked as a run would be; InputError if there is no such level."""
        with self._about_empty(self.level(at)):
            dims, env = self.level_at(at)
            plan = planner.plan(dims, env)
        for bound in reversed(plan.bounds):
            bound.check(env)
        return plan, env

    @contextmanager
    def _about_empty(self, level: Mapping[str, int]) -> Iterator[None]:
        """Says of a level at which an op takes nothing that a length of it is 0, not what the op misses."""
        try:
            yield
        except InputError as error:
            empty = [symbol.name for symbol in self.source.symbols if symbol.places and level[symbol.name] == 0]
            if empty and str(error).startswith(("op ", "instruction ")):
                raise InputError(f"{empty[0]} is 0; {self.name} takes at least 1") from None
            raise

    def session(
        self, device: str | int | None = None, choices: Mapping[str, str] | None = None, fuse: bool = True
    ) -> Session:
        """The part on a device; `choices` forces routes, `fuse=False` keeps the file's ops. "cpu": the references."""
        chosen = self.device if device is None else device
        kv = None if self.decoder else "f32"
        gpu = choose_device(chosen)
        options = SessionOptions(kv, choices, fuse, proven=False)  # what there is, right or wrong
        return build_session(self.graph, gpu, self.dynamic, self.names, options)


def default_levels(symbols: Mapping[str, int]) -> list[dict[str, int]]:
    """A prefill and a decode step where the program has a length and a position; else its max, and a length of 1."""
    length, position = symbols.get("S"), symbols.get("pos")
    if length is None or length < 2:
        return [{}]
    if position is None:
        return [{}, {"S": 1}]
    prompt = max(1, min(PROMPT, length, position))
    return [{"S": prompt, "pos": 0}, {"S": 1, "pos": prompt}]


def parse_at(text: str) -> dict[str, int]:
    """`"S=17,pos=40"` as a level."""
    level: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, equals, number = (word.strip() for word in item.partition("="))
        if not equals or not name or not re.fullmatch(r"-?\d{1,10}", number):
            raise InputError(f"a level is written as S=17,pos=40; {item!r} is not NAME=NUMBER")
        if name in level:
            raise InputError(f"{name} is given twice in {text!r}")
        level[name] = int(number)
    return level


def complete(symbols: Sequence[Symbol], at: Mapping[str, int], what: str) -> dict[str, int]:
    """`at` with what it leaves out; InputError for names and numbers that cannot be."""
    known = {symbol.name: symbol for symbol in symbols}
    for name, value in at.items():
        if name not in known:
            varies = ", ".join(f"{s.name} (up to {s.most})" for s in symbols) or "nothing"
            raise InputError(f"{what} has no {name}; what varies in it: {varies}")
        if not 0 <= value <= known[name].most:
            raise InputError(f"{name} is {value}; in {what} it is 0 to {known[name].most}")
    return {symbol.name: at.get(symbol.name, symbol.default) for symbol in symbols}


def method_parts(program: Program, method: str, device: str | int | None = None) -> list[Part]:
    """The graphs of a method that its delegates call; none of a method that has only constants or kernels."""
    if method not in program.methods:
        raise InputError(f"{program.file.path.name} has no method {method!r}; it has {', '.join(program.methods)}")
    file, info = program.file.methods[method], program.methods[method]
    graph = program.single_graph(method)
    if graph is not None:
        dynamic, names = tuple(spec.dynamic for spec in info.inputs), tuple(spec.name for spec in info.inputs)
        return [Part(method, graph, dynamic, names, GraphSource(graph, dynamic, names), 0, device)]
    calls: dict[int, DelegateCall] = {}
    for instruction in file.instructions:
        if isinstance(instruction, DelegateCall):
            calls.setdefault(instruction.delegate, instruction)
    if not calls:
        return []
    source = MethodSource(program, info, file)
    parts = []
    for n, call in sorted(calls.items()):
        graph = program.delegate_graph(method, n)
        name = method if len(calls) == 1 else f"{method}/{n}"
        dynamic, names = source.delegate_inputs(call, len(graph.inputs))
        gives = tuple(f"value {id}" for id in call.args[len(graph.inputs) :])
        parts.append(Part(name, graph, dynamic, names, source, n, device, gives))
    return parts


def _open_gguf(
    file: GgufFile,
    device: str | int | None,
    context: int | None,
    tokenizer: str | os.PathLike[str] | None,
    chunk: int | None,
) -> OpenedFile:
    context = choose_context(file, context)
    graph = build_graph(file, context, min(chunk or default_chunk(None), context))
    source = GraphSource(graph, DYNAMIC, INPUTS)
    opened = OpenedFile(file.path, device, "forward", gguf=file, tokenizer_file=tokenizer)
    opened.parts.append(Part("forward", graph, DYNAMIC, INPUTS, source, 0, device, decoder=True))
    return opened
