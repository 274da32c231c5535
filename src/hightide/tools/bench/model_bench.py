"""One model measured: prefill and decode at several lengths, the host's part, memory, start-up, and the kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hightide.formats.model_file import is_model, model_bytes, read_model
from hightide.gpu.limits import Limits
from hightide.tools.bench.bench_engine import NAME, BenchEngine, prompt, short_name
from hightide.tools.bench.first_token import first_token
from hightide.tools.bench.host import Host, measure_host
from hightide.tools.bench.kernel_shares import KernelShare, kernel_shares
from hightide.tools.bench.samples import WorkRow

Tell = Callable[[str], None]


@dataclass(frozen=True)
class BenchSettings:
    """How much is measured."""

    prefill: tuple[int, ...] = (16, 64, 128, 256, 512, 1024)
    decode: tuple[int, ...] = (0, 128, 512, 1024, 2048, 4096)
    rounds: int = 5
    tokens: int = 8  # decoded at a time
    seconds: float = 8.0  # after which a size is not repeated, once there are two samples
    kernel_runs: int = 5


QUICK = BenchSettings((16, 128), (0, 128, 1024), rounds=3, tokens=4, seconds=3.0, kernel_runs=3)


@dataclass
class ModelResult:
    name: str
    file_bytes: int
    layers: int
    rows: list[WorkRow]  # prefill and decode at all sizes
    host: Host
    start: dict[str, Any]  # from the file to the first token, and memory
    device_bytes: dict[str, int]
    kernels: list[KernelShare]

    def as_json(self) -> dict[str, Any]:
        host = {**asdict(self.host), "per_dispatch_us": self.host.per_dispatch_us, "share": self.host.share}
        return {
            "name": self.name,
            "file_bytes": self.file_bytes,
            "rows": [row.as_json() for row in self.rows],
            "host": host,
            "start": self.start,
            "device_bytes": self.device_bytes,
            "kernels": [asdict(share) for share in self.kernels],
        }


def open_engine(model: Path, device: str, settings: BenchSettings, longest: int = 0) -> BenchEngine:
    """The model with as much context as the sizes ask for, or all that it has; a program's own is fixed."""
    wanted = max((*settings.decode, *settings.prefill, longest)) + 2 * settings.tokens + 8
    context = min(wanted, int(read_model(model).get("context_length", wanted))) if is_model(model) else None
    return BenchEngine(model, context=context, device=device)


def measure_model(
    engine: BenchEngine, model: Path, device: str, limits: Limits, settings: BenchSettings, tell: Tell
) -> ModelResult:
    name = short_name(model.name)
    tell(f"{name}: from the file to the first token")
    start = first_token(model, device)
    rows = _curves(engine, settings, lambda what: tell(f"{name}: {what}"))
    host = measure_host(engine)
    tell(f"{name}: its kernels")
    kernels = kernel_shares(engine, limits, settings.decode, settings.kernel_runs)
    layers = int(read_model(model).get("block_count", 0)) if is_model(model) else 0
    memory = engine.session.device_bytes()
    return ModelResult(model.name, model_bytes(model), layers, rows, host, start, memory, kernels)


def _curves(engine: BenchEngine, settings: BenchSettings, tell: Tell) -> list[WorkRow]:
    """All sizes, in rounds over the sizes."""
    most = engine.context - settings.tokens - 2
    lengths = [size for size in settings.prefill if size <= most]
    contexts = [size for size in settings.decode if size <= most]
    rows = [WorkRow("prefill", size, NAME) for size in lengths] + [WorkRow("decode", size, NAME) for size in contexts]
    spent: dict[int, float] = {}
    engine.fill()
    for turn in range(settings.rounds):
        tell(f"{len(rows)} sizes, round {turn + 1}")
        for number, row in enumerate(rows):
            if turn >= 2 and spent[number] > settings.seconds:
                continue
            started = time.perf_counter()
            row.samples += _sample(engine, row, settings, warm=turn == 0)
            spent[number] = spent.get(number, 0.0) + time.perf_counter() - started
    return rows


def _sample(engine: BenchEngine, row: WorkRow, settings: BenchSettings, warm: bool) -> Iterable[Any]:
    if row.what == "prefill":
        tokens = prompt(row.size, engine.decoder.vocab_size)
        if warm:
            engine.prefill(tokens[: engine.decoder.max_rows])  # the level of its chunks
        return engine.prefill(tokens).samples
    engine.start_at(row.size)
    engine.decode(1)
    return engine.decode(settings.tokens).samples
