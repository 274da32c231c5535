"""The bench as a whole: engines open side by side, and every round goes through all of them in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hightide.errors import HightideError, InputError
from hightide.formats.gguf import is_gguf
from hightide.gpu.device import Device
from hightide.gpu.limits import Limits
from hightide.tools.bench.bench_engine import BenchEngine, prompt, short_name
from hightide.tools.bench.kernel_shares import KernelShare
from hightide.tools.bench.model_bench import QUICK as QUICK_BENCH
from hightide.tools.bench.model_bench import BenchSettings, ModelResult, measure_model, open_engine
from hightide.tools.bench.samples import Measured, WorkRow
from peerbench.built_for import BuiltFor
from peerbench.matmul import ROWS, Matmul, matmul_shares
from peerbench.peer import KINDS, Kind, Peer, PeerError
from peerbench.reading_share import attention_share, linear_share

SHARED = 128  # tokens of the prompt that every engine reads, and of context that it decodes after

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    own: BenchSettings = field(default_factory=BenchSettings)  # of hightide alone
    rounds: int = 3  # of the work that peers do too
    pairs: int = 24  # of steps on a graph built for 2048 and on one built for 1


QUICK = Settings(QUICK_BENCH, rounds=2, pairs=8)


class Modelled(Protocol):
    """What runs a model: hightide, or a peer."""

    name: str
    on_cpu: bool

    def prefill(self, tokens: Sequence[int]) -> Measured: ...

    def decode(self, count: int) -> Measured: ...


@dataclass
class ComparedModel:
    own: ModelResult
    shared: list[WorkRow]  # all engines on the same work; none without peers
    about: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each peer

    def as_json(self) -> dict[str, Any]:
        return {**self.own.as_json(), "peers": self.about, "shared": [row.as_json() for row in self.shared]}


@dataclass
class Result:
    """All that one run of the bench found."""

    machine: dict[str, Any]
    settings: Settings
    limits: Limits
    software: bool  # the adapter is the CPU: engines are compared by CPU time
    models: list[ComparedModel] = field(default_factory=list)
    matmul: list[WorkRow] = field(default_factory=list)
    matmul_kernels: list[KernelShare] = field(default_factory=list)
    built_for: BuiltFor | None = None
    shares: dict[str, float] = field(default_factory=dict)  # of reading the same bytes: "gemv", "attention 4096"
    notes: list[str] = field(default_factory=list)


def compare_model(
    model: Path, device: Device, settings: Settings, result: Result, kinds: Sequence[Kind], tell: Tell
) -> None:
    """One model: the curves of hightide, and the shared work of all engines."""
    selector = str(device.adapter.index)
    engine = open_engine(model, selector, settings.own, SHARED)
    shared = min(SHARED, engine.context - settings.own.tokens - 2)
    if shared < 1:
        raise InputError(f"{model.name} has a context of {engine.context}, too short to measure")
    tokens = prompt(shared, engine.decoder.vocab_size)
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
    own = measure_model(engine, model, selector, result.limits, settings.own, tell)
    result.models.append(ComparedModel(own, shared_rows, about))


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
        found = {(rows, e.name): WorkRow("matmul", rows, e.name, e.on_cpu) for rows in ROWS for e in engines}
        for turn in range(max(3, settings.rounds)):
            tell(f"q4 matmul: round {turn + 1}")
            for rows in ROWS:
                for engine in engines:
                    found[rows, engine.name].samples += engine.matmul(rows, 4 if rows == 1 else 1).samples
    result.matmul = list(found.values())
    tell("GEMV beside reading its weights, attention beside reading K and V")
    result.shares |= {"gemv": linear_share(device), "attention 4096": attention_share(device, 4096)}
    result.matmul_kernels = matmul_shares(ours, result.limits, ROWS, settings.own.kernel_runs)


def _open_peer(
    kind: Kind, model: Path, engine: BenchEngine, tokens: Sequence[int], result: Result, adapter: str
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
) -> list[WorkRow]:
    """A prompt, then decoding behind it: engine after engine, round after round."""
    if len(engines) < 2:
        return []
    engines[0].prefill(tokens)
    size = len(tokens)
    found = {(what, e.name): WorkRow(what, size, e.name, e.on_cpu) for what in ("prefill", "decode") for e in engines}
    broken: set[str] = set()
    for turn in range(settings.rounds):
        tell(f"round {turn + 1} of {', '.join(e.name for e in engines if e.name not in broken)}")
        for each in engines:
            if each.name in broken:
                continue
            try:
                found["prefill", each.name].samples += each.prefill(tokens).samples
                each.decode(1)  # apart: some engines build their decode graph here
                found["decode", each.name].samples += each.decode(settings.own.tokens).samples
            except PeerError as error:
                broken.add(each.name)
                _note(result, str(error))
    return [row for row in found.values() if row.samples]


def _note(result: Result, text: str) -> None:
    if text not in result.notes:
        result.notes.append(text)


def wanted_kinds(keys: Sequence[str] | None) -> list[Kind]:
    """The peers of these keys, or all."""
    known = {kind.key for kind in KINDS}
    if keys and (bad := next((key for key in keys if key not in known), None)) is not None:
        raise HightideError(f"there is no peer {bad!r}; there are {', '.join(sorted(known))}")
    return [kind for kind in KINDS if keys is None or kind.key in keys]
