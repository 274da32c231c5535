"""Plots of a run: hightide's curves, and the engines side by side. Needs matplotlib (the `bench` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hightide.tools.bench.bench_engine import NAME, short_name
from hightide.tools.bench.samples import WorkRow
from peerbench.suite import Result

OURS, THEIRS, REFERENCE = "#0b7285", "#adb5bd", "#e9ecef"


def draw(result: Result, folder: Path) -> list[Path]:
    """PNG files in `folder`; none, and a note, without matplotlib."""
    if find_spec("matplotlib") is None:
        missing = "There are no plots: they need matplotlib, which `pip install 'hightide[bench]'` brings."
        result.notes += [missing] if missing not in result.notes else []
        return []
    import matplotlib

    matplotlib.use("Agg")
    drawn = [_curves(result, folder / "curves.png")] if result.models else []
    if any(model.shared for model in result.models):
        drawn.append(_peers(result, folder / "peers.png"))
    if len(result.matmul) > 2:
        drawn.append(_matmul(result, folder / "matmul.png"))
    return drawn


def _curves(result: Result, path: Path) -> Path:
    """Tokens a second over the prompt's length and over the context, with the middle half of the runs."""
    figure, axes = _figure(2)
    for model in result.models:
        for axis, what in zip(axes, ("prefill", "decode"), strict=True):
            rows = sorted((r for r in model.own.rows if r.what == what), key=lambda r: r.size)
            tokens = [row.size if what == "prefill" else 1 for row in rows]
            rates = [[count / time * 1e3 for count, time in zip(tokens, times, strict=True)] for times in _walls(rows)]
            (line,) = axis.plot([r.size for r in rows], rates[0], "o-", label=short_name(model.own.name), linewidth=1.5)
            axis.fill_between([r.size for r in rows], rates[1], rates[2], alpha=0.2, color=line.get_color())
    axes[0].set(title="prefill", xlabel="tokens of the prompt", ylabel="tokens a second", ylim=(0, None))
    axes[1].set(title="decode", xlabel="tokens of context", ylim=(0, None))
    axes[0].legend(frameon=False)
    return _save(figure, path, result)


def _walls(rows: Sequence[WorkRow]) -> list[list[float]]:
    return [[row.wall_ms.median for row in rows], [row.wall_ms.high for row in rows], [row.wall_ms.low for row in rows]]


def _peers(result: Result, path: Path) -> Path:
    """Milliseconds of each engine on the shared work; shorter is better."""
    models = [model for model in result.models if model.shared]
    figure, axes = _figure(2 * len(models))
    for number, model in enumerate(models):
        for axis, what in zip(axes[2 * number :], ("prefill", "decode"), strict=False):
            rows = [row for row in model.shared if row.what == what]
            _bars(axis, rows, result.software)
            at = f"prefill {rows[0].size}" if what == "prefill" else f"decode at {rows[0].size}"
            axis.set_title(f"{short_name(model.own.name)}\n{at}", fontsize=9)
    return _save(figure, path, result)


def _matmul(result: Result, path: Path) -> Path:
    sizes = list(dict.fromkeys(row.size for row in result.matmul))
    figure, axes = _figure(len(sizes))
    for axis, size in zip(axes, sizes, strict=True):
        _bars(axis, [row for row in result.matmul if row.size == size], result.software)
        axis.set_title(f"q4 matmul, M = {size}", fontsize=9)
    return _save(figure, path, result)


def _bars(axis: Any, rows: Sequence[WorkRow], software: bool) -> None:
    ordered = sorted(rows, key=lambda row: -row.milliseconds(software))
    times = [row.milliseconds(software) for row in ordered]
    colours = [OURS if row.engine == NAME else REFERENCE if row.on_cpu else THEIRS for row in ordered]
    bars = axis.barh([row.engine for row in ordered], times, color=colours)
    axis.bar_label(
        bars, labels=[f"{time:,.0f}" if time >= 100 else f"{time:.3g}" for time in times], padding=2, fontsize=7
    )
    axis.set_xlim(0, max(times) * 1.2)
    axis.tick_params(labelsize=7)
    axis.set_xlabel(f"{'CPU' if software else 'wall'} ms", fontsize=8)


def _figure(panels: int) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    columns = min(panels, 2)
    lines = -(-panels // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4.8 * columns, 3.2 * lines), layout="constrained", squeeze=False
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat)


def _save(figure: Any, path: Path, result: Result) -> Path:
    import matplotlib.pyplot as plt

    figure.supxlabel(f"{result.machine['adapter']}, {result.machine['driver']}, {result.machine['when']}", fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
