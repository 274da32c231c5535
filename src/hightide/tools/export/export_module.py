"""`hightide.export`: a torch module as a `.pte` program, checked against eager at several live sizes."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.exporter import need_exporter, quiet
from hightide.option_checks import check_bool, check_int, check_number, check_path
from hightide.planning.explain import Explanations
from hightide.pte.program import Method, load
from hightide.runtime.build import choose_device, named_device
from hightide.tools.export.check_inputs import check_levels, level_name
from hightide.tools.export.export_report import CheckedSize, ExportReport
from hightide.tools.export.lowering import METHOD, lowered
from hightide.tools.export.module_call import ModuleCall, call_of
from hightide.tools.export.placed_ops import placed_ops
from hightide.tools.export.python_model import blamed
from hightide.tools.export.stages import stage
from hightide.tools.export.traced_module import TracedModule, trace

TOLERANCE, TOLERANCE_HALVES = 1e-3, 2e-2  # as of the outputs of a whole run in `hightide verify`


@dataclass(frozen=True)
class _Check:
    """Calls one after another, from a fresh state."""

    name: str
    calls: tuple[ModuleCall, ...]


def export(
    module: Any,
    inputs: Any,
    dynamic_shapes: Any = None,
    out: str | os.PathLike[str] | None = None,
    *,
    checks: Sequence[Any] | None = None,
    device: str | int | None = None,
    fp16: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> ExportReport:
    """Exports a torch module in eval mode, writes the program to `out`, and compares it with eager; `print` the report.

    `inputs` are examples: a tuple of tensors, or a dict of them by name. `dynamic_shapes` are texts such as
    "x:1=S<=128", or what torch.export takes. The program runs on `device` (as in `load`) at the largest, the smallest,
    an odd and a middle size, with random inputs from the ranges of the examples, each time from the module's first
    state. `checks` replaces these: a list of inputs, in which a list of inputs stands for calls one after another.
    `tolerance` is the largest error that passes, as a fraction of the output's range: by default 1e-3, or 2e-2 with
    halves. With `fp16` the delegates hold halves. Needs the extra `export`. An ExportError says which stage failed.
    """
    path = None if out is None else _checked_path(out)
    _check_options(fp16, tolerance, seed)
    need_exporter()
    choose_device(named_device(device))  # an unknown one is refused now, not after minutes of exporting
    with quiet(), tempfile.TemporaryDirectory(prefix="hightide") as folder:
        traced = trace(module, inputs, dynamic_shapes)
        wanted = list(_random_checks(traced, seed) if checks is None else _given_checks(traced, checks))
        made = lowered(traced, fp16)
        file = Path(folder, "program.pte") if path is None else path
        file.write_bytes(made.data)
        halves = fp16 or any("16" in str(leaf.dtype) for leaf in traced.example.leaves if leaf.is_floating_point())
        allowed = tolerance if tolerance is not None else TOLERANCE_HALVES if halves else TOLERANCE
        report = _compared(traced, file, wanted, allowed, device)
        return replace(report, path="" if path is None else str(path), note=made.note)


def _compared(
    traced: TracedModule, file: Path, checks: Sequence[_Check], allowed: float, device: str | int | None
) -> ExportReport:
    with stage("run"), load(file, device=device) as program, load(file, device="cpu", whole=False) as parts:
        method = program.method(METHOD)
        graphs = [session.graph for session in method.sessions if session.graph.calls]
        return ExportReport(
            path=str(file),
            bytes=file.stat().st_size,
            signature=traced.signature,
            device=", ".join(dict.fromkeys(session.name for session in method.sessions)) or "NumPy",
            tolerance=allowed,
            sizes=tuple(_checked(traced, method, check, allowed) for check in checks),
            ops=placed_ops(parts, program, METHOD),
            graphs=len(graphs),
            runs=sum(len(graph.calls) for graph in graphs),
        )


# ---- what is checked


def _random_checks(traced: TracedModule, seed: int) -> Iterator[_Check]:
    rng = np.random.default_rng(seed)
    levels = check_levels(traced.ranges)
    for level in levels:
        yield _Check(level_name(level), (traced.call_at(level, rng),))
    if traced.stateful:
        least = levels[min(1, len(levels) - 1)]
        yield _Check(f"{level_name(least)}, twice", (traced.call_at(least, rng), traced.call_at(least, rng)))


def _given_checks(traced: TracedModule, checks: Any) -> Iterator[_Check]:
    if not isinstance(checks, list | tuple) or not checks:
        raise InputError("checks must be a list of inputs, each like the example inputs")
    for n, given in enumerate(checks):
        calls = tuple(call_of(traced.module, inputs) for inputs in (given if isinstance(given, list) else [given]))
        for call in calls:
            if len(call.leaves) != len(traced.example.leaves):
                raise InputError(
                    f"check {n} has {len(call.leaves)} tensors, the example inputs {len(traced.example.leaves)}"
                )
        yield _Check(f"check {n}", calls)


def _checked(traced: TracedModule, method: Method, check: _Check, allowed: float) -> CheckedSize:
    """Runs one check on both sides."""
    eager, errors, problem = traced.fresh(), [0.0], ""
    method.reset()
    for n, call in enumerate(check.calls):
        try:
            wanted = _eager(eager, call)
        except Exception as error:  # of somebody's module
            return CheckedSize(check.name, skipped=f"the module itself fails there: {blamed(error)}")
        try:
            dispatches = _dispatches(method, call) if n == len(check.calls) - 1 else 0
            got = [np.asarray(value) for value in method(*call.arrays())]
        except HightideError as error:
            return CheckedSize(check.name, problem=str(error))
        if len(got) != len(wanted):
            return CheckedSize(check.name, problem=f"it gives {len(got)} outputs, eager {len(wanted)}")
        found = [_error(g, w) for g, w in zip(got, wanted, strict=True)]
        errors = [max(pair) for pair in zip(found, errors if n else found, strict=True)]
        problem = problem or _problem(got, wanted, found, allowed)
    return CheckedSize(check.name, tuple(errors), dispatches, problem)


def _eager(module: Any, call: ModuleCall) -> list[np.ndarray]:
    import torch
    from torch.utils._pytree import tree_leaves

    given = call.with_leaves([leaf.clone() for leaf in call.leaves])
    with torch.no_grad():
        outputs = tree_leaves(module(*given.args, **given.kwargs))
    return [np.asarray(o.clone() if isinstance(o, torch.Tensor) else o) for o in outputs if o is not None]


def _dispatches(method: Method, call: ModuleCall) -> int:
    explained = method.explain(*call.arrays())
    return sum(e.dispatches for e in (explained if isinstance(explained, Explanations) else (explained,)))


# ---- how far it is from eager


def _error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, as a fraction of the range of what is wanted, 0 included; of integers the share."""
    if got.shape != want.shape:
        return math.inf
    if not want.size:
        return 0.0
    if want.dtype.kind != "f":
        return float(np.mean(got != want))
    g, w = got.astype(np.float64), want.astype(np.float64)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    finite = w[np.isfinite(w)]
    reach = max(0.0, finite.max()) - min(0.0, finite.min()) if finite.size else 0.0
    with np.errstate(all="ignore"):
        off = np.where(same, 0.0, np.abs(g - w) / reach)
    return float(np.where(np.isnan(off), np.inf, off).max())


def _problem(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], errors: Sequence[float], allowed: float) -> str:
    for n, (g, w, error) in enumerate(zip(got, wanted, errors, strict=True)):
        if g.shape != w.shape or g.dtype.kind != w.dtype.kind:
            return f"out{n} is {g.dtype}{list(g.shape)}, eager gives {w.dtype}{list(w.shape)}"
        if w.dtype.kind != "f" and error > 0:
            return f"{error:.1%} of the elements of out{n} differ"
        if error > allowed:
            return f"out{n} is off by {error:.1e} of its range, more than the {allowed:.1e} allowed"
    return ""


# ---- options


def _checked_path(out: Any) -> Path:
    check_path("out", out)
    path = Path(out)
    if path.suffix != ".pte" or not path.parent.is_dir():
        raise InputError(f"{path} must end in .pte and be in a folder that exists")
    return path


def _check_options(fp16: Any, tolerance: Any, seed: Any) -> None:
    check_bool("fp16", fp16)
    check_int("seed", seed, 0)
    if tolerance is not None:
        check_number("tolerance", tolerance)
        if tolerance < 0:
            raise InputError(f"tolerance must be at least 0, not {tolerance}")
