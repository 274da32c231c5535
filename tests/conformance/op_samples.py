"""Exports samples of torch's own op database as programs without a delegate, with what eager gives.

    pip install torch==2.13.0 executorch==1.5.1 expecttest
    python tests/conformance/op_samples.py FOLDER [--most 4] [name...]

A sample of an op is a call with tensors and other arguments, written by torch's developers for its tests. Each becomes
a module that takes the tensors, exported with every dim of more than 1 as dynamic where the exporter allows it.
`<n>.npz` has the inputs and eager outputs of `<n>.pte`: step 0 at the sample's sizes, step 1 at half of them, where it
is dynamic and eager takes that. `index.json` says which sample it is, and what could not be exported.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.exir import EdgeCompileConfig, to_edge
from torch.export import Dim, export
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

DTYPES = (torch.float32, torch.int64, torch.bool)
HELD = (torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool)
UNORDERED = (
    "argsort",
    "msort",
    "sort",
    "topk",
)  # torch does not say which of equals comes first: floats are all different
UNDEFINED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "linalg.svd",
    "svd",
)  # may be anything, or have any sign
TENSOR = object()  # stands for a tensor among a call's arguments


class Call(torch.nn.Module):
    """One call of an op: the tensors are its inputs, all else is fixed."""

    def __init__(self, op: Any, form: TreeSpec, leaves: list[Any]) -> None:
        super().__init__()
        self.op, self.form, self.leaves = op, form, leaves

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        args, kwargs = tree_unflatten([next(given) if leaf is TENSOR else leaf for leaf in self.leaves], self.form)
        made = self.op(*args, **kwargs)
        return tuple(made) if isinstance(made, list | tuple) else made  # the exporter does not know torch's own tuples


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=4, help="samples of an op and type")
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    programs: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name, call, tensors in samples(args.names, args.most):
        try:
            data, steps = exported(call, tensors)
        except Exception as error:
            failed[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            continue
        stem = str(len(programs))
        programs[stem] = name
        (args.folder / f"{stem}.pte").write_bytes(data)
        arrays = {
            f"{n}.{kind}{m}": t.detach().numpy()
            for n, sides in enumerate(steps)
            for kind, side in zip(("in", "out"), sides, strict=True)
            for m, t in enumerate(side)
        }
        np.savez(args.folder / f"{stem}.npz", **arrays)
    (args.folder / "index.json").write_text(json.dumps({"programs": programs, "failed": failed}, indent=1))


def samples(names: list[str], most: int) -> Iterator[tuple[str, Call, list[torch.Tensor]]]:
    """Calls with tensors that are not empty, of types that a GPU holds, and which eager takes."""
    for info in op_db:
        for dtype in DTYPES:
            if (names and info.name not in names) or dtype not in info.dtypes:
                continue
            if info.name in UNDEFINED:
                continue
            if info.name in UNORDERED and dtype != torch.float32:
                continue
            try:
                found = list(info.sample_inputs("cpu", dtype, requires_grad=False))
            except Exception:  # some need what is not installed
                continue
            usable = filter(None, (usable_call(info.op, sample) for sample in spread(found)))
            for n, (call, tensors) in enumerate(islice(usable, most)):
                variant = f".{info.variant_test_name}" if info.variant_test_name else ""
                yield f"{info.name}{variant} {str(dtype).removeprefix('torch.')} {n}", call, tensors


def spread(found: list[Any]) -> list[Any]:
    """The samples in an order whose beginning is of all kinds: torch lists those of a kind together."""
    order = sorted(range(len(found)), key=lambda n: (n * 0.618033988749895) % 1)
    return [found[n] for n in order]


def usable_call(op: Any, sample: Any) -> tuple[Call, list[torch.Tensor]] | None:
    leaves, form = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(t.layout != torch.strided for t in given):  # sparse ones
        return None
    tensors = [t.detach().clone().contiguous() for t in given]
    if not tensors or any(not t.numel() or t.dtype not in HELD for t in tensors):
        return None
    call = Call(op, form, [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
    try:
        outputs(call, tensors)
    except Exception:
        return None
    return call, tensors


def outputs(call: Call, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    given = call(*(t.clone() for t in tensors))
    made = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(t, torch.Tensor) and t.dtype in HELD for t in made):
        raise TypeError("an output that is no tensor, or of a type that a GPU does not hold")
    return [t.contiguous() for t in made]


Step = tuple[list[torch.Tensor], list[torch.Tensor]]


def exported(call: Call, tensors: list[torch.Tensor]) -> tuple[bytes, list[Step]]:
    steps = [(tensors, outputs(call, tensors))]
    sizes = {n: Dim(f"size{n}", min=1, max=n) for t in tensors for n in t.shape if n > 1}
    if sizes:
        dims = tuple({d: sizes[n] for d, n in enumerate(t.shape) if n > 1} or None for t in tensors)
        half = [t[tuple(slice((n + 1) // 2) for n in t.shape)].contiguous() for t in tensors]
        try:
            data = program(call, tensors, (dims,))
            return data, [*steps, (half, outputs(call, half))]
        except Exception:  # a dim that the exporter or the op wants fixed
            pass
    return program(call, tensors, None), steps


def program(call: Call, tensors: list[torch.Tensor], dynamic: Any) -> bytes:
    traced = export(call, tuple(tensors), dynamic_shapes=dynamic, strict=False)
    made = to_edge(traced, compile_config=EdgeCompileConfig(_check_ir_validity=False)).to_executorch()
    file = io.BytesIO()
    made.write_to_file(file)
    return file.getvalue()


if __name__ == "__main__":
    main()
