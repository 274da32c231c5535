"""Programs of ExecuTorch's own WebGPU op tests, taken as they export them, with the answers of their eager modules.

    python tests/conformance/executorch_exports.py OUT [--small] [--tests] [test_sdpa test_cat...]

The tests ship in the exporter's package (`executorch.backends.webgpu.test.ops`). Their `export_*` functions are
called, or with `--tests` whole test modules are run, while `torch.export.export` and `to_executorch` are watched:
what goes in is the eager module, its example inputs and which dims are dynamic, what comes out is the program.
Each program is written as `<name>.pte` and `<name>.npz`: steps at the largest, the least, odd sizes and every live S
that the test has files for, in that order and back, on inputs within the range of the examples.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import inspect
import json
import re
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch import exir
from executorch.exir import EdgeProgramManager

TESTS = "executorch.backends.webgpu.test.ops"
LARGEST = 1 << 22  # elements of an example: programs of more take minutes on a software adapter
SMALL = 150_000  # bytes of a program and its answers, to be kept in the repository
EXTENSIONS = ("pte", "npz")


@dataclass
class Recorded:
    """One export: what was traced, and what it became."""

    name: str
    module: torch.nn.Module
    example: tuple[Any, ...]
    traced: Any  # torch.export.ExportedProgram
    program: bytes = b""
    sizes: set[int] = field(default_factory=set)  # the live sizes that the test has files for


@contextmanager
def recording(found: list[Recorded]) -> Iterator[list[str]]:
    """Watch exports; the caller puts the name of what it runs into the list that it gets.

    The exporter itself traces patterns while it lowers, so what is lowered says which trace a program is of. Tests
    that were imported before have taken `to_edge_transform_and_lower` already, and are not seen.
    """
    name = [""]
    export, lower, finish = torch.export.export, exir.to_edge_transform_and_lower, EdgeProgramManager.to_executorch
    traced: dict[int, Recorded] = {}

    def watched_export(module: torch.nn.Module, args: tuple[Any, ...], *rest: Any, **options: Any) -> Any:
        kept = copy.deepcopy(module)
        result = export(module, args, *rest, **options)
        traced[id(result)] = Recorded(name[0], kept, copy.deepcopy(tuple(args)), result)
        return result

    def watched_lower(program: Any, *rest: Any, **options: Any) -> Any:
        edge = lower(program, *rest, **options)
        edge._recorded = traced.get(id(program))
        return edge

    def watched_finish(self: Any, *rest: Any, **options: Any) -> Any:
        result = finish(self, *rest, **options)
        if recorded := getattr(self, "_recorded", None):
            found.append(replace(recorded, program=bytes(result.buffer), sizes=set()))
        return result

    torch.export.export, exir.to_edge_transform_and_lower = watched_export, watched_lower
    EdgeProgramManager.to_executorch = watched_finish
    try:
        yield name
    finally:
        torch.export.export, exir.to_edge_transform_and_lower = export, lower
        EdgeProgramManager.to_executorch = finish


def record(wanted: list[str] | None = None, whole_tests: bool = False) -> tuple[list[Recorded], list[str]]:
    """The programs of the test modules (all of them), and what could not be exported."""
    found: list[Recorded] = []
    failed: list[str] = []
    with recording(found) as name, tempfile.TemporaryDirectory() as folder:
        for module in _modules(wanted):
            for function, arguments in _exports(module, Path(folder)):
                name[0] = f"{module.__name__.removeprefix(TESTS + '.')}.{function.__name__}"
                before = len(found)
                try:
                    function(*arguments)
                except Exception as error:  # theirs: a test that their own package cannot run
                    failed.append(f"{name[0]}: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
                _note_sizes(found[before:], Path(folder))
            if whole_tests:
                name[0] = f"{module.__name__.removeprefix(TESTS + '.')}"
                unittest.TextTestRunner(stream=None, verbosity=0).run(
                    unittest.defaultTestLoader.loadTestsFromModule(module)
                )
    return _distinct(found), failed


def _modules(wanted: list[str] | None) -> Iterator[Any]:
    (root,) = importlib.import_module(TESTS).__path__
    for path in sorted(Path(root).rglob("test_*.py")):
        if not wanted or path.stem in wanted:
            yield importlib.import_module(".".join([TESTS, *path.relative_to(root).with_suffix("").parts]))


def _exports(module: Any, folder: Path) -> Iterator[tuple[Any, list[Any]]]:
    """The module's own `export_*` functions that take a folder, or the paths of files."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("export_") or function.__module__ != module.__name__:
            continue
        needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        if all(p.name == "out_dir" or p.name.endswith("_path") for p in needed):
            place = folder / f"{module.__name__.rsplit('.', 1)[-1]}.{name}"
            place.mkdir(exist_ok=True)
            yield function, [str(place if p.name == "out_dir" else place / p.name) for p in needed]


def _note_sizes(found: list[Recorded], folder: Path) -> None:
    """The live sizes S of the files `<program>.S<size>...` that lie beside a program."""
    for path in folder.rglob("*.pte"):
        data = path.read_bytes()
        for one in (r for r in found if r.program == data):
            one.name = f"{one.name}.{path.stem}"
            beside = (re.match(r"\.S(\d+)\.", p.name[len(path.stem) :]) for p in path.parent.glob(f"{path.stem}.S*"))
            one.sizes |= {int(match[1]) for match in beside if match}
        path.unlink()  # the same name may come from another function


def _distinct(found: list[Recorded]) -> list[Recorded]:
    kept: dict[bytes, Recorded] = {}
    for one in found:
        kept.setdefault(one.program, one)
    return list(kept.values())


# ---- steps


def levels(recorded: Recorded) -> list[dict[Any, int]]:
    """Symbols of the traced shapes -> live sizes, one dict per step: down from the largest, and back."""
    ranges = {
        symbol: (int(bounds.lower), int(bounds.upper))
        for symbol, bounds in recorded.traced.range_constraints.items()
        if any(symbol in _symbols(value) for value in _inputs(recorded))
    }
    if not ranges:
        return [{}]
    most = {symbol: high for symbol, (_, high) in ranges.items()}
    chosen = [most]
    for part in (0.5, 0.0, 0.3, 0.8):
        chosen.append({s: min(high, low + int((high - low) * part) | 1) for s, (low, high) in ranges.items()})
    chosen.append({symbol: low for symbol, (low, _) in ranges.items()})
    for size in sorted(recorded.sizes, reverse=True):
        if all(low <= size <= high for low, high in ranges.values()):
            chosen.append(dict.fromkeys(ranges, size))
    return [*chosen, most]


def _inputs(recorded: Recorded) -> list[Any]:
    """The fake tensors that the user's inputs were traced with."""
    program = recorded.traced
    names = set(program.graph_signature.user_inputs)
    values = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _symbols(value: Any) -> set[Any]:
    shape = value.shape if isinstance(value, torch.Tensor) else ()
    return set().union(*(d.node.expr.free_symbols for d in shape if isinstance(d, torch.SymInt)))


def inputs_at(recorded: Recorded, level: dict[Any, int], step: int, rng: np.random.Generator) -> list[Any]:
    """Inputs of the level's dims with numbers from the range of the examples; a position goes on by one a step."""
    made = []
    fakes = iter(_inputs(recorded))
    for name, example in zip(recorded.traced.graph_signature.user_inputs, recorded.example, strict=True):
        if not isinstance(example, torch.Tensor):  # a number that the program has for good
            made.append(example)
            continue
        fake = next(fakes)
        dims = [int(d.node.expr.subs(level)) if isinstance(d, torch.SymInt) else d for d in fake.shape]
        if "pos" in name and example.numel() == 1 and not example.is_floating_point():
            made.append(torch.full_like(example, 0 if level else step))
            continue
        low, high = (float(example.min()), float(example.max())) if example.numel() else (0.0, 1.0)
        if example.is_floating_point():
            low, high = (low - 1, high + 1) if low == high else (low, high)
            array = rng.uniform(low, high, dims) if np.isfinite([low, high]).all() else rng.normal(size=dims)
        else:
            array = rng.integers(int(low), int(high) + 1, dims)
        made.append(torch.from_numpy(np.asarray(array)).to(example.dtype))
    return made


def answers(recorded: Recorded) -> dict[str, np.ndarray]:
    """The inputs of every step, the eager module's outputs, and the inputs that it changed (a cache that is given)."""
    module, rng = copy.deepcopy(recorded.module), np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    order = levels(recorded)
    for n, level in enumerate(order if len(order) > 1 else order * 3):
        given = inputs_at(recorded, level, n, rng)
        after = copy.deepcopy(given)
        with torch.no_grad():
            result = module(*after)
        flat = result if isinstance(result, list | tuple) else [result]
        if "update_cache" in recorded.name:  # it gives back one element that means nothing
            flat = []
        changed = [
            b for a, b in zip(given, after, strict=True) if isinstance(a, torch.Tensor) and not torch.equal(a, b)
        ]
        for kind, tensors in (("in", given), ("changed", changed), ("out", flat)):
            for i, tensor in enumerate(tensors):
                arrays[f"{n}.{kind}{i}"] = np.asarray(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor)
    return arrays


def write(folder: Path, wanted: list[str] | None = None, whole_tests: bool = False, small: bool = False) -> Any:
    """Export, and write programs, answers and an index of both; with `small`, what is small and has live dims."""
    found, failed = record(wanted, whole_tests)
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, str] = {}
    for one in found:
        stem = one.name.rsplit(".", 1)[-1]
        stem = f"{stem}_{len(names)}" if stem in names else stem
        if "bad" in stem:  # made to be refused by their runtime; the eager op aborts
            failed.append(f"{one.name}: made to fail")
            continue
        if max((t.numel() for t in one.example if isinstance(t, torch.Tensor)), default=0) > LARGEST:
            failed.append(f"{one.name}: too large to run here")
            continue
        try:
            arrays = answers(one)
        except Exception as error:  # an eager module that does not take other inputs than its example
            failed.append(f"{one.name}: eager: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            continue
        (folder / f"{stem}.pte").write_bytes(one.program)
        np.savez_compressed(folder / f"{stem}.npz", **arrays)
        names[stem] = one.name
        if small and (levels(one) == [{}] or sum((folder / f"{stem}.{e}").stat().st_size for e in EXTENSIONS) > SMALL):
            del names[stem]
            for extension in EXTENSIONS:
                (folder / f"{stem}.{extension}").unlink()
    index = {"programs": names, "failed": failed}
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    return index


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--tests", action="store_true", help="run whole test modules, not only export_* functions")
    parser.add_argument("--small", action="store_true", help="keep what is small and has live dims")
    chosen = parser.parse_args()
    print(json.dumps(write(chosen.out, chosen.modules, chosen.tests, chosen.small), indent=1))
