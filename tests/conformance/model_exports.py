"""Exports whole models of many kinds with random weights, with what their eager modules give.

    pip install torch==2.13.0 executorch==1.5.1 safetensors
    python tests/conformance/model_exports.py OUT [--again] [--kept] [name...]

Llamas (`llama_exports.py`) go through `executorch.examples.models.llama` as its command line would take them; the
modules of `decoders.py` and `networks.py` through a partitioner. Each program is `<name>.pte` with `<name>.npz`, the
steps of a schedule as `make_programs.py` writes them. `index.json` says what each is, and has the message of the
exporter where there is no program. What is in OUT already is not made again, unless `--again` is said. The large models
of `networks.py`, for `benchmarks/whole.py`, are only made when they are named.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import logging
import tempfile
import textwrap
import traceback
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decoders import DECODERS
from llama_exports import LLAMAS, SMALL, Llama
from make_programs import Step, Weights, export_llama, llama_steps, llama_weights, lower_module
from modules import Module
from networks import LARGE, NETWORKS

SUITE: dict[str, Llama | Module] = {**LLAMAS, **DECODERS, **NETWORKS}
MODULES: dict[str, Module] = {**DECODERS, **NETWORKS, **LARGE}
VERSIONS = ("torch", "executorch")
KEPT = (  # in the folder `model_exports`: small ones, of which each has what no other has
    *("qk_norm", "gated_heads", "pruned_vocabulary", "ring_cache_portable", "qwen3_5_xnnpack", "lfm2_xnnpack"),
    *("quantized_cache_xnnpack", "static_quantized_cache"),
    *("conformer", "wav2letter", "gru", "silero_vad", "inception"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true", help="make what is there already")
    parser.add_argument("--kept", action="store_true", help="make those that are kept in the repository")
    args = parser.parse_intermixed_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    path = args.folder / "index.json"
    index = json.loads(path.read_text()) if path.exists() else {}
    for name in args.names or (KEPT if args.kept else SUITE):
        if not args.again and all(index.get(name, {}).get(package) == version(package) for package in VERSIONS):
            continue
        index[name] = made(name, args.folder)
        print(name, index[name].get("fails", "made"), flush=True)
        lines = [f"{json.dumps(name)}: {json.dumps(index[name])}" for name in [*SUITE, *LARGE] if name in index]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def made(name: str, folder: Path) -> dict[str, Any]:
    """Exports one; what to know about it, and the exporter's message if it fails."""
    about: dict[str, Any]
    if name in LLAMAS:
        case = LLAMAS[name]
        about = dict(about=case.about, switches=case.switches, rounded=case.rounded, backend=_llama_backend(case))
        about |= {"refused": case.refused} if case.refused else {}
    else:
        module = MODULES[name]
        backend = module.backend if module.delegate else "portable"
        about = dict(about=(module.make.__doc__ or "").strip(), backend=backend, rounded=module.int8 or module.int4)
    about |= {package: version(package) for package in VERSIONS}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            steps, goldens = llama(name, folder) if name in LLAMAS else network(name, folder)
    except Exception as error:  # theirs
        (folder / f"{name}.pte").unlink(missing_ok=True)
        (folder / f"{name}.log").write_text(traceback.format_exc())
        return {**about, "fails": _message(error)}
    arrays = {f"{n}.in{i}": x for n, (_, inputs) in enumerate(steps) for i, x in enumerate(inputs)}
    arrays |= {f"{n}.out{i}": x for n, outputs in enumerate(goldens) for i, x in enumerate(outputs)}
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    return about


def llama(name: str, folder: Path) -> tuple[list[Step], list[list[np.ndarray]]]:
    case = LLAMAS[name]
    params = {**SMALL, **case.changes}
    max_seq, context = params.pop("max_seq"), params.pop("context")
    max_s = 1 if "--disable_dynamic_shape" in case.switches else max_seq - 1
    weights = llama_weights(params, tied=False)
    with tempfile.TemporaryDirectory() as files:
        for file, content in case.files.items():
            Path(files, file).write_text(json.dumps(content))
        if case.adapter:
            save_adapter(weights, case.files["adapter.json"], Path(files, "adapter.safetensors"))
        switches = f"{case.switches} --max_seq_length {max_seq} --max_context_length {context}"
        model = export_llama(switches.format(folder=files), params, weights, folder / f"{name}.pte")
    if "-X" in switches and "8da4w" in switches:  # the program's scales are bfloat16
        for weight in model.parameters():
            if hasattr(weight, "scale"):
                weight.scale = weight.scale.bfloat16().float()
    steps = llama_steps(max_s, context, case.tokens or params["vocab_size"], kv_cache="-kv" in case.switches)
    steps = [(method, inputs) for method, inputs in steps if inputs[0].shape[1] >= case.least]
    goldens = []
    with torch.no_grad():
        for _, inputs in steps:
            tokens, *position = map(torch.from_numpy, inputs)
            goldens.append([model(tokens, {"input_pos": position[0]} if position else None).numpy().copy()])
    return steps, goldens


def save_adapter(weights: Weights, config: dict[str, Any], path: Path) -> None:
    """A LoRA adapter for these weights, in the names of Hugging Face's."""
    from safetensors.torch import save_file

    names = {"q_proj": "attention.wq", "v_proj": "attention.wv", "down_proj": "feed_forward.w2"}
    homes = {"q_proj": "self_attn", "v_proj": "self_attn", "down_proj": "mlp"}
    generator = torch.Generator().manual_seed(1)
    adapter: Weights = {}
    for target in config["target_modules"]:
        for layer in range(SMALL["n_layers"]):
            out, wide = weights[f"layers.{layer}.{names[target]}.weight"].shape
            place = f"base_model.model.model.layers.{layer}.{homes[target]}.{target}"
            adapter[f"{place}.lora_A.weight"] = torch.randn(config["r"], wide, generator=generator) * wide**-0.5
            adapter[f"{place}.lora_B.weight"] = torch.randn(out, config["r"], generator=generator) * 0.5
    save_file(adapter, path)


def network(name: str, folder: Path) -> tuple[list[Step], list[list[np.ndarray]]]:
    case = MODULES[name]
    torch.manual_seed(0)
    module = case.make().eval().requires_grad_(False)
    eager = copy.deepcopy(module)
    lower_module(module, case, folder / f"{name}.pte", delegate=case.delegate)
    goldens = []
    with torch.no_grad():
        for method, inputs in case.steps():
            outputs = getattr(eager, method)(*(torch.from_numpy(x.copy()) for x in inputs))
            goldens.append([x.numpy().copy() for x in (outputs if isinstance(outputs, tuple) else (outputs,))])
    return case.steps(), goldens


def _llama_backend(case: Llama) -> str:
    words = case.switches.split()
    return "vulkan" if "-V" in words else "xnnpack" if "-X" in words else "portable"


def _message(error: BaseException) -> str:
    """What went wrong first: the exporter wraps errors of its passes, and asserts without a word."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = textwrap.shorten(lines[0], 160, placeholder=" ...") if lines else where.line
    return f"{type(error).__name__}: {said} ({Path(where.filename).name})"


if __name__ == "__main__":
    main()
