"""The bench as a whole: engines open side by side, and every round goes through all of them in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hightide.errors import HightideError, InputError
from hightide.formats.gguf import is_gguf, read_gguf
from hightide.gpu.device import Device
from hightide.gpu.limits import Limits
from hightide.tools.bench.bench_engine import NAME, Engine, prompt, short_name
from hightide.tools.bench.built_for import BuiltFor
from hightide.tools.bench.first_token import first_token
from hightide.tools.bench.host import Host, measure_host
from hightide.tools.bench.kernel_shares import KernelShare, kernel_shares, matmul_shares
from hightide.tools.bench.matmul import ROWS, Matmul
from hightide.tools.bench.peer import KINDS, Kind, Peer, PeerError
from hightide.tools.bench.samples import Measured, Row
from hightide.tools.bench.scripts import attention_share, linear_share

SHARED = 128  # tokens of the prompt that every engine reads, and of context that it decodes after

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    prefill: tuple[int, ...] = (16, 64, 128, 256, 512, 1024)
    decode: tuple[int, ...] = (0, 128, 512, 1024, 2048, 4096)
    rounds: int = 5  # of hightide's own curves
    peer_rounds: int = 3  # of the work that peers do too
    tokens: int = 8  # decoded at a time
    seconds: float = 8.0  # after which a size is not repeated, once there are two samples
    pairs: int = 24  # of steps on a graph built for 2048 and on one built for 1
    kernel_runs: int = 5


QUICK = Settings((16, 128), (0, 128, 1024), rounds=3, peer_rounds=2, tokens=4, seconds=3.0, pairs=8, kernel_runs=3)


class Modelled(Protocol):
    """What runs a model: hightide, or a peer."""

    name: str
    on_cpu: bool

    def prefill(self, tokens: Sequence[int]) -> Measured: ...

    def decode(self, count: int) -> Measured: ...


@dataclass
class ModelResult:
    name: str
    file_bytes: int
    layers: int
    rows: list[Row]  # hightide at all sizes
    shared: list[Row]  # all engines on the same work; none without peers
    host: Host
    start: dict[str, Any]  # from the file to the first token, and memory
    device_bytes: dict[str, int]
    kernels: list[KernelShare]
    about: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each peer


@dataclass
class Result:
    """All that one run of the bench found."""

    machine: dict[str, Any]
    settings: Settings
    limits: Limits
    software: bool  # the adapter is the CPU: engines are compared by CPU time
    models: list[ModelResult] = field(default_factory=list)
    matmul: list[Row] = field(default_factory=list)
    matmul_kernels: list[KernelShare] = field(default_factory=list)
    built_for: BuiltFor | None = None
    shares: dict[str, float] = field(default_factory=dict)  # of reading the same bytes: "gemv", "attention 4096"
    notes: list[str] = field(default_factory=list)


def measure_model(
    model: Path, device: Device, settings: Settings, result: Result, kinds: Sequence[Kind], tell: Tell
) -> None:
    """One model: the curves of hightide, and the shared work of all engines."""
    selector = str(device.adapter.index)
    longest = max((*settings.decode, *settings.prefill, SHARED)) + 2 * settings.tokens + 8
    engine = Engine(model, context=_context(model, longest), device=selector)
    shared = min(SHARED, engine.context - settings.tokens - 2)
    if shared < 1:
        raise InputError(f"{model.name} has a context of {engine.context}, too short to measure")
    tokens = prompt(shared, engine.decoder.vocab_size)
    tell(f"{short_name(model.name)}: from the file to the first token")
    start = first_token(model, selector)
    about: dict[str, dict[str, Any]] = {}
    with ExitStack() as open_peers:
        engines: list[Modelled] = [engine]
        for kind in kinds:
            if "model" in kind.takes:
                tell(f"{short_name(model.name)}: warming up {kind.name}")
                peer = _open_peer(kind, model, engine, tokens, result, device.adapter.name)
                if peer is not None:
                    open_peers.callback(peer.close)
                    engines.append(peer)
                    about[peer.name] = peer.about
        shared_rows = _shared_work(
            engines, tokens, settings, result, lambda what: tell(f"{short_name(model.name)}: {what}")
        )
    rows = _curves(engine, settings, lambda what: tell(f"{short_name(model.name)}: {what}"))
    host = measure_host(engine)
    tell(f"{short_name(model.name)}: its kernels")
    kernels = kernel_shares(engine, result.limits, settings.decode, settings.kernel_runs)
    layers = int(read_gguf(model).get("block_count", 0)) if is_gguf(model) else 0
    memory = engine.session.device_bytes()
    size = model.stat().st_size
    result.models.append(ModelResult(model.name, size, layers, rows, shared_rows, host, start, memory, kernels, about))


def measure_matmul(device: Device, settings: Settings, result: Result, kinds: Sequence[Kind], tell: Tell) -> None:
    """One q4 matmul at M = 1 and 128 on every engine that can, with the upload of x and the readback of y."""
    tell("q4 matmul: warming up")
    ours = Matmul(device)
    with ExitStack() as open_peers:
        engines: list[Matmul | Peer] = [ours]
        for kind in kinds:
            if "matmul" in kind.takes:
                try:
                    peer = Peer(kind)
                    open_peers.callback(peer.close)
                    for rows in ROWS:
                        peer.matmul(rows, 3)  # tinygrad records its graph at the second run
                    engines.append(peer)
                except PeerError as error:
                    _note(result, str(error))
        for rows in ROWS:
            ours.matmul(rows, 2)
        found = {(rows, e.name): Row("matmul", rows, e.name, e.on_cpu) for rows in ROWS for e in engines}
        for turn in range(max(3, settings.peer_rounds)):
            tell(f"q4 matmul: round {turn + 1}")
            for rows in ROWS:
                for engine in engines:
                    found[rows, engine.name].samples += engine.matmul(rows, 4 if rows == 1 else 1).samples
    result.matmul = list(found.values())
    tell("GEMV beside reading its weights, attention beside reading K and V")
    for name, share in (("gemv", linear_share(device)), ("attention 4096", attention_share(device, 4096))):
        if share is not None:
            result.shares[name] = share
    result.matmul_kernels = matmul_shares(ours, result.limits, ROWS, settings.kernel_runs)


def _open_peer(
    kind: Kind, model: Path, engine: Engine, tokens: Sequence[int], result: Result, adapter: str
) -> Peer | None:
    """A peer that has read a prompt once, or None with a note of why it is not there."""
    if not is_gguf(model):
        return None
    try:
        peer = Peer(kind, model)
    except PeerError as error:
        _note(result, str(error))
        return None
    try:
        device = str(peer.about.get("device", ""))
        if not kind.on_cpu and "llama.cpp" in kind.name and adapter not in device:
            raise PeerError(f"{kind.name} is left out: it took {device}, and hightide {adapter}")
        theirs, ours = peer.prefill(tokens), engine.prefill(tokens)
        peer.decode(2)
        if theirs.ids != ours.ids:
            said = f"{theirs.ids[0]} where hightide says {ours.ids[0]}"
            _note(result, f"{kind.name} disagrees on {short_name(model.name)}: after the prompt it says id {said}.")
        return peer
    except PeerError as error:
        peer.close()
        _note(result, str(error))
        return None


def _shared_work(
    engines: Sequence[Modelled], tokens: Sequence[int], settings: Settings, result: Result, tell: Tell
) -> list[Row]:
    """A prompt, then decoding behind it: engine after engine, round after round."""
    if len(engines) < 2:
        return []
    engines[0].prefill(tokens)
    size = len(tokens)
    found = {(what, e.name): Row(what, size, e.name, e.on_cpu) for what in ("prefill", "decode") for e in engines}
    broken: set[str] = set()
    for turn in range(settings.peer_rounds):
        tell(f"round {turn + 1} of {', '.join(e.name for e in engines if e.name not in broken)}")
        for each in engines:
            if each.name in broken:
                continue
            try:
                found["prefill", each.name].samples += each.prefill(tokens).samples
                each.decode(1)  # apart: some engines build their decode graph here
                found["decode", each.name].samples += each.decode(settings.tokens).samples
            except PeerError as error:
                broken.add(each.name)
                _note(result, str(error))
    return [row for row in found.values() if row.samples]


def _curves(engine: Engine, settings: Settings, tell: Tell) -> list[Row]:
    """hightide alone at all sizes, in rounds over the sizes."""
    most = engine.context - settings.tokens - 2
    lengths = [size for size in settings.prefill if size <= most]
    contexts = [size for size in settings.decode if size <= most]
    rows = [Row("prefill", size, NAME) for size in lengths] + [Row("decode", size, NAME) for size in contexts]
    spent: dict[int, float] = {}
    engine.fill()
    for turn in range(settings.rounds):
        tell(f"hightide at {len(rows)} sizes, round {turn + 1}")
        for number, row in enumerate(rows):
            if turn >= 2 and spent[number] > settings.seconds:
                continue
            started = time.perf_counter()
            row.samples += _sample(engine, row, settings, warm=turn == 0)
            spent[number] = spent.get(number, 0.0) + time.perf_counter() - started
    return rows


def _sample(engine: Engine, row: Row, settings: Settings, warm: bool) -> Iterable[Any]:
    if row.what == "prefill":
        tokens = prompt(row.size, engine.decoder.vocab_size)
        if warm:
            engine.prefill(tokens[: engine.decoder.max_tokens])  # the level of its chunks
        return engine.prefill(tokens).samples
    engine.start_at(row.size)
    engine.decode(1)
    return engine.decode(settings.tokens).samples


def _context(model: Path, wanted: int) -> int | None:
    """As much context as the sizes ask for, or all that a model has; a program's own is fixed."""
    return min(wanted, int(read_gguf(model).get("context_length", wanted))) if is_gguf(model) else None


def _note(result: Result, text: str) -> None:
    if text not in result.notes:
        result.notes.append(text)


def wanted_kinds(keys: Sequence[str] | None) -> list[Kind]:
    """The peers of these keys, or all."""
    known = {kind.key for kind in KINDS}
    if keys and (bad := next((key for key in keys if key not in known), None)) is not None:
        raise HightideError(f"there is no peer {bad!r}; there are {', '.join(sorted(known))}")
    return [kind for kind in KINDS if keys is None or kind.key in keys]
