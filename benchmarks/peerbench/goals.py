"""What hightide is to reach, beside what was measured: one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hightide.tools.bench.bench_engine import NAME, short_name
from hightide.tools.bench.kernel_shares import KernelShare
from hightide.tools.bench.model_bench import ModelResult
from hightide.tools.bench.samples import find_row
from peerbench.suite import SHARED, ComparedModel, Result

SMOL = "SmolLM2-135M-Instruct"
STANDARD = ("random Llama", SMOL)  # the models that have goals
VULKAN, ORT = "llama.cpp Vulkan", "ONNX Runtime WebGPU"


@dataclass(frozen=True)
class Goal:
    what: str
    goal: str
    measured: str
    ratio: float  # of what was measured by the goal; 1 or more: reached

    @property
    def met(self) -> bool:
        return self.ratio >= 1


def goals(result: Result) -> list[Goal]:
    """Those that this run has figures for."""
    found: list[Goal] = []
    models = {short_name(model.own.name): model for model in result.models}
    for model in (models[name] for name in STANDARD if name in models):
        found += _against_peers(result, model)
    for rows, least in ((1, 3.0), (128, 2.5)):
        theirs, ours = (find_row(result.matmul, "matmul", rows, name) for name in (ORT, NAME))
        if theirs and ours:
            ratio = theirs.milliseconds(result.software) / ours.milliseconds(result.software)
            found.append(_times(f"q4 matmul, M = {rows} beside {ORT}", least, ratio))
    found += _kernel_goals(result)
    if result.built_for:
        ratio = result.built_for.ratio
        what = f"S = 1 on a graph built for {result.built_for.built_for}"
        found.append(Goal(what, "≤ 2 % over one built for 1", f"{(ratio - 1) * 100:+.1f} %", 1.02 / ratio))
    for name in (name for name in STANDARD if name in models):
        found += _host_goals(models[name].own, with_time=name == SMOL)
    return found


def _times(what: str, least: float, ratio: float) -> Goal:
    return Goal(what, f"≥ {least:g} ×", f"{ratio:.2f} ×", ratio / least)


def _against_peers(result: Result, model: ComparedModel) -> Iterator[Goal]:
    for what, least in (("decode", 4.0), ("prefill", 3.0)):
        theirs, ours = (find_row(model.shared, what, SHARED, name) for name in (VULKAN, NAME))
        if theirs and ours:
            ratio = theirs.milliseconds(result.software) / ours.milliseconds(result.software)
            at = f"{what} at {SHARED}" if what == "decode" else f"{what} {SHARED}"
            yield _times(f"{short_name(model.own.name)}: {at} beside {VULKAN}", least, ratio)


def _kernel_goals(result: Result) -> Iterator[Goal]:
    """GEMV and attention beside a kernel that only reads; where there is none, beside the fastest stream of reads."""
    one, many = (_main(result.matmul_kernels, f"matmul M={rows}", "linear") for rows in (1, 128))
    if reached := _reached(result, "gemv", one):
        yield Goal("q4 GEMV", f"≥ 60 % of {_reading(result, 'gemv')} its weights", f"{reached:.0%}", reached / 0.6)
    if many:
        reached = many.gflop_s / result.limits.fma_gflop_s
        yield Goal("q4 GEMM, M = 128", "≥ 25 % of the FMA peak", f"{reached:.0%}", reached / 0.25)
    kernels = [_main(model.own.kernels, "decode at 4096", "attention") for model in result.models]
    longest = max((k for k in kernels if k), key=lambda k: k.milliseconds, default=None)
    if reached := _reached(result, "attention 4096", longest):
        goal = f"≥ 50 % of {_reading(result, 'attention 4096')} K and V"
        yield Goal("attention, decode at 4096", goal, f"{reached:.0%}", reached / 0.5)


def _reached(result: Result, name: str, kernel: KernelShare | None) -> float:
    """The share that the kernel's own benchmark found, else that of the adapter's reads; 0: neither is known."""
    return result.shares.get(name, kernel.gb_s / result.limits.read_gb_s if kernel else 0.0)


def _reading(result: Result, name: str) -> str:
    return "reading" if name in result.shares else "streaming"


def _main(kernels: Sequence[KernelShare], run: str, family: str) -> KernelShare | None:
    """The kernel of a family that takes the most time."""
    return next((k for k in kernels if k.run == run and k.family == family), None)


def _host_goals(model: ModelResult, with_time: bool) -> Iterator[Goal]:
    host, name = model.host, short_name(model.name)
    if with_time:
        waits = host.waits_us / host.dispatches
        yield Goal(f"{name}: host, while the GPU waits", "≤ 1.5 µs a dispatch", f"{waits:.2f} µs", 1.5 / waits)
        yield Goal(f"{name}: host, in all", "≤ 5 % of a decode step", f"{host.share:.1%}", 0.05 / host.share)
    if model.layers:
        most = 8 * model.layers + 6
        goal = f"≤ 8 × {model.layers} + 6 = {most}"
        yield Goal(f"{name}: dispatches a token", goal, str(host.dispatches), most / host.dispatches)
