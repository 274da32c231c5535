"""The programs of tests/conformance and their schedules: steps with inputs and the outputs of the eager model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hightide.pte.program import Method, Program
from hightide.runtime.cpu_session import CpuSession

PROGRAMS = Path(__file__).parent / "conformance"
INDEX: dict[str, dict[str, Any]] = json.loads((PROGRAMS / "programs.json").read_text())
Step = tuple[str, list[np.ndarray]]  # method, inputs


def steps(name: str) -> Iterator[tuple[str, list[np.ndarray], list[np.ndarray]]]:
    """(method, inputs, expected outputs), to run in order on one session."""
    with np.load(PROGRAMS / f"{name}.npz") as arrays:
        for n, method in enumerate(INDEX[name]["steps"]):
            yield method, _numbered(arrays, f"{n}.in"), _numbered(arrays, f"{n}.out")


def main_method(name: str) -> str:
    """`forward`, or in a program without it the last method of its schedule."""
    methods = INDEX[name]["steps"] if name in INDEX else ["forward"]
    return "forward" if "forward" in methods else methods[-1]


def oracle(program: Program, method: str) -> Method:
    """The method with its delegates in float64 on NumPy; what is between them stays as it is."""
    sessions = [
        CpuSession(
            program.delegate_graph(method, n) if s.graph.calls else s.graph,  # as it is in the file, before passes
            [spec.dynamic for spec in s.specs],
            [spec.name for spec in s.specs],
            dtype="float64",
        )
        for n, s in enumerate(program.method(method).sessions)
    ]
    return Method(program, program.methods[method], program.file.methods[method], sessions)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the range of what is wanted."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
    return error_of_range(got, want)


def numbered(arrays: np.lib.npyio.NpzFile, prefix: str) -> list[np.ndarray]:
    """The arrays `<prefix>0`, `<prefix>1`, … of a file."""
    found = []
    while f"{prefix}{len(found)}" in arrays:
        found.append(arrays[f"{prefix}{len(found)}"])
    return found


def error_of_range(got: np.ndarray, want: np.ndarray) -> float:
    """As above for floats of any precision; integers and bools must be equal."""
    assert got.shape == want.shape, (got.shape, want.shape)
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else np.inf
    if not want.size:
        return 0.0
    if not np.isfinite(got).all():
        return np.inf
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
    reach = np.ptp(want.astype(np.float64)) if want.size > 1 else abs(float(want.reshape(-1)[0]))
    return float(difference / max(reach, 1e-9))


def _numbered(arrays: np.lib.npyio.NpzFile, prefix: str) -> list[np.ndarray]:
    found = []
    while f"{prefix}{len(found)}" in arrays:
        found.append(arrays[f"{prefix}{len(found)}"])
    return found
