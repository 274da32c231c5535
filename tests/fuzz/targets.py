"""What a user does with a file: read it, build it, run it. An error of hightide's own is a fine answer."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from fuzz.op_graphs import decoded
from fuzz.seeds import ADAPTER, EXTERNAL, model_file, seeds
from hightide import LLM, Embedder, load
from hightide.cli.conversation import Conversation
from hightide.errors import FOREIGN, HightideError
from hightide.fuse.half_storage import held
from hightide.gpu import limits, measurements
from hightide.gpu.device import adapters
from hightide.graph.aliases import check_order
from hightide.llm.chat_template import render
from hightide.llm.default_model import remembered
from hightide.llm.tokenizer import Tokenizer
from hightide.ops.binding import bind_graph
from hightide.ops.choices import CHOICES, Choices
from hightide.planning.levels import InputSpec, graph_inputs
from hightide.planning.planner import Planner
from hightide.pte.program import Method, Program
from hightide.runtime.build import fused
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.device_routes import tuned_routes
from hightide.runtime.session_plan import plan_session
from hightide.tools.inspect.file_report import inspect_file
from hightide.tools.inspect.planning import PlannedPart, target_of
from hightide.tools.opened_file import method_parts
from hightide.tools.tune import tuner
from hightide.traits import Traits

# Messages of what is caught only because no check has said it before: such a file is refused, but is a failure here.
SECOND_LINE = re.compile(r"do not fit each other \(\w+:|is damaged \(\w+:")
MOST_ITEMS = 1 << 16  # of one input
TEXT = "ab a\n<s>é🌊 <0x0A>"
SUFFIXES = {"pte": ".pte", "gpu": ".pte", "ptd": ".ptd", "gguf": ".gguf", "json": ".json", "llama2c": ".bin"}


def run(kind: str, name: str, data: bytes, folder: Path) -> str:
    """ "refused" or "valid"; whatever else a file makes happen comes out as it is."""
    path = folder / (Path(name).stem + SUFFIXES.get(kind, Path(name).suffix))
    path.write_bytes(data)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            _TARGETS[kind](path, Random(f"{kind} {name} {len(data)}"))
        except HightideError as error:
            _check(error)
            return "refused"
    return "valid"


def _check(error: HightideError) -> None:
    """An error that says something, and that a check has raised: not one that was caught behind all checks."""
    if not str(error).strip() or "internal" in str(error):
        raise AssertionError(f"an error that says nothing: {error!r}") from error
    cause = error.__cause__
    if isinstance(cause, FOREIGN) and SECOND_LINE.search(str(error)):
        raise cause


# ---- programs


def _program(path: Path, chance: Random, device: str | None = "cpu") -> None:
    data = [EXTERNAL] if path.name.startswith("external") else []
    if device == "cpu" and not chance.randrange(8):
        with _refusals():
            inspect_file(path, target_of(None))
    with load(path, device=device, data=data) as program:
        refusals: list[HightideError] = []
        for name in list(program.methods)[:4]:
            with _refusals(refusals):
                _method(program, name, chance, plan=device == "cpu" and not chance.randrange(3))
    if refusals:
        raise refusals[0]


def _method(program: Program, name: str, chance: Random, plan: bool) -> None:
    with program.method(name) as method:
        for smallest in (False, True):
            with _refusals():
                _call(method, smallest)
        method.reset()
        if method.inputs:
            with _refusals():
                method.explain(*_inputs(method.inputs, True))
    if plan:  # as a GPU session would be, without a GPU
        for part in method_parts(program, name):
            _plan(PlannedPart(part, target_of(None)).planner, part.specs)


def _plan(planner: Planner, specs: Sequence[InputSpec]) -> None:
    """All that a session does before it needs a device."""
    for plan in plan_session(planner, specs).plans:
        for step in plan.steps:
            step.dispatch.kernel.interface.pack(step.dispatch.params)


def _call(method: Method, smallest: bool) -> None:
    for output in method(*_inputs(method.inputs, smallest)):
        assert isinstance(output, np.ndarray)


def _inputs(specs: Sequence[InputSpec], smallest: bool) -> list[Any]:
    arrays = []
    for spec in specs:
        dims = tuple(min(d, 1) for d in spec.dims) if smallest and spec.dynamic else spec.dims
        if int(np.prod(dims, dtype=np.float64)) > MOST_ITEMS:
            dims = tuple(min(d, 2) for d in dims)
        arrays.append(np.full(dims, 1 if np.dtype(spec.dtype).kind == "f" else 0, spec.dtype))
    return arrays


@contextmanager
def _refusals(found: list[HightideError] | None = None) -> Iterator[None]:
    """Go on behind an error of hightide's own."""
    try:
        yield
    except HightideError as error:
        _check(error)
        if found is not None:
            found.append(error)


def _data_file(path: Path, chance: Random) -> None:
    with load(EXTERNAL.with_suffix(".pte"), device="cpu", data=path) as program:
        for name in program.methods:
            _method(program, name, chance, plan=False)


def _on_gpu(path: Path, chance: Random) -> None:
    if adapters():
        _program(path, chance, device=None)


def _graph(path: Path, chance: Random) -> None:
    """One op call: bound, planned for both, run on the references."""
    graph = bind_graph(decoded(path.read_bytes()))
    check_order(graph)
    specs = graph_inputs(graph, None, None)
    with _refusals():
        planner = Planner(held(fused(graph), Traits()), choices=Choices(Traits(software=chance.random() < 0.5)))
        _plan(planner, specs)
    with CpuSession(graph) as session:
        for smallest in (False, True):
            with _refusals():
                session.run(_inputs(specs, smallest))


# ---- models


def _model(path: Path, chance: Random) -> None:
    if not chance.randrange(8):
        with _refusals():
            inspect_file(path, target_of(None), context=16)
    with LLM(path, device="cpu", context=chance.choice((None, 8)), chunk=4) as llm:
        with _refusals():
            llm.generate([1, 2, 3, 4, 5], max_tokens=2)
        if llm.tokenizer is not None:
            with _refusals():
                _text(llm.tokenizer)
            with _refusals():
                llm.encode([{"role": "user", "content": TEXT}])


def _folder(path: Path, chance: Random) -> None:
    _model(_unpacked(path, "config.json", "model.safetensors"), chance)


def _unpacked(path: Path, config: str, weights: str) -> Path:
    """A folder that was kept as one file."""
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name, data in zip((config, weights), [*path.read_bytes().split(b"\n", 1), b""], strict=False):
        folder.joinpath(name).write_bytes(data)
    return folder


def _encoder(path: Path, chance: Random) -> None:
    with Embedder(path, device="cpu", context=chance.choice((None, 8)), max_texts=2) as embedder:
        with _refusals():
            embedder.embed([[1, 2, 3], [4]])
        with _refusals():
            embedder.rank(TEXT, [TEXT, "a"])
        if embedder.tokenizer is not None:
            with _refusals():
                _text(embedder.tokenizer)


def _encoder_folder(path: Path, chance: Random) -> None:
    _encoder(_unpacked(path, "config.json", "model.safetensors"), chance)


def _half(path: Path, chance: Random) -> None:
    """The other file is whole."""
    for name, data in seeds("split").items():
        if name != path.name:
            path.with_name(name).write_bytes(data)
    _model(path, chance)


def _adapter(path: Path, chance: Random) -> None:
    refusals: list[HightideError] = []
    ways: list[dict[str, Any]] = [{"merge": path}, {"adapters": {"x": path}}]
    for given in ways:
        with _refusals(refusals), LLM(model_file(), device="cpu", context=8, chunk=4, **given) as llm:
            llm.generate([1, 2, 3], max_tokens=2, adapters={"x": 0.5} if "adapters" in given else None)
    if len(refusals) == len(ways):
        raise refusals[0]


def _peft(path: Path, chance: Random) -> None:
    _adapter(_unpacked(path, "adapter_config.json", "adapter_model.safetensors"), chance)


def _tokenizer(path: Path, chance: Random) -> None:
    _text(Tokenizer.from_file(path))


def _text(tokenizer: Tokenizer) -> None:
    with _refusals():
        ids = tokenizer.encode(TEXT)
        tokenizer.decode(ids, special=True)
        tokenizer.encode(TEXT, special=True)
    for token in (0, tokenizer.vocab_size - 1):
        with _refusals():
            tokenizer.piece(token)


def _template(path: Path, chance: Random) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a b"}]
    text = render(path.read_bytes().decode("utf-8", "replace"), messages, bos_token="<s>", eos_token="</s>")
    assert isinstance(text, str)


# ---- what hightide wrote itself


@cache
def _state_model() -> LLM:
    return LLM(model_file(), device="cpu", context=16)


def _state(path: Path, chance: Random) -> None:
    llm = _state_model()
    llm.reset()
    llm.load_state(path)
    llm.generate([*llm.tokens, 7], max_tokens=1)


def _cache_file(path: Path, chance: Random) -> None:
    """Caches are taken or left: no damage to one is worth an error."""
    folder = path.parent / "hightide"
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)
    adapter: Any = SimpleNamespace(name="a", backend="b", driver="c", features=())
    with _environment(XDG_CACHE_HOME=str(path.parent), XDG_STATE_HOME=str(path.parent), HIGHTIDE_TUNED="1"):
        entries = measurements.load(path.name)
        if ADAPTER in entries:
            measurements.save(path.name, {**entries, measurements.adapter_key(adapter): entries[ADAPTER]})
        choices = Choices(chosen=tuned_routes(adapter))
        assert all(choices(choice) in choice.options for choice in CHOICES.values())
        remembered()
        with patch.object(limits, "_key", lambda device: ADAPTER):
            known_limits = limits.known_limits(adapter)
        if known_limits is not None:
            known_limits.seconds(1, 1)
            known_limits.binding(1, 1)
        for verdict in tuner.known(adapter):
            assert verdict.gain > 0
    if path.name == "conversation.json":
        conversation = Conversation(_state_model(), {})
        conversation.load(folder / path.name)


@contextmanager
def _environment(**changes: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


_TARGETS: dict[str, Callable[[Path, Random], None]] = {
    "pte": _program,
    "gpu": _on_gpu,
    "graph": _graph,
    "ptd": _data_file,
    "gguf": _model,
    "folder": _folder,
    "encoder": _encoder,
    "encoder_folder": _encoder_folder,
    "split": _half,
    "adapter": _adapter,
    "peft": _peft,
    "json": _tokenizer,
    "sentencepiece": _tokenizer,
    "tiktoken": _tokenizer,
    "llama2c": _tokenizer,
    "template": _template,
    "state": _state,
    "cache": _cache_file,
}
