"""LoRA adapters, as llama.cpp's GGUF files or PEFT's folders, merged into the weights of a model as they are read.

An adapter has for some matrices W [out, in] two thin ones: W becomes W + scale * up @ down, with down [rank, in] and
up [out, rank].
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import get_tensor_name_map

from hightide.errors import InputError, ProgramError, UnsupportedError, reading
from hightide.formats.folder_recipes import RECIPES
from hightide.formats.gguf import GgufFile, GgufTensor, is_gguf, read_gguf
from hightide.formats.model_config import ModelConfig
from hightide.formats.model_folder import ARCHITECTURE, as_floats, mapped_name
from hightide.formats.model_tensors import of_rows, read_rows, transposed
from hightide.formats.safetensors import StoredTensor, read_json, read_shards
from hightide.formats.source_file import plain_name
from hightide.option_checks import shown

PEFT_CONFIG = "adapter_config.json"
EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
_PEFT_NAME = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(embedding_)?([AB])(?:\.[^.]+)?(?:\.weight)?")
_COPY = re.compile(r"(?:base_model\.model\.)?(.+)\.base_layer\.weight")
# What a PEFT config may ask for beside low-rank matrices, and what it must be.
_NEEDED = {"peft_type": "LORA", "use_dora": False, "bias": "none", "lora_bias": False, "use_qalora": False}
_ABSENT: tuple[str, ...] = ("modules_to_save", "layer_replication", "trainable_token_indices", "target_parameters")
_ABSENT += (
    "use_bdlora",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "velora_config",
    "monteclora_config",
)
_PATTERN = re.compile(r"[\w.^$\\|\[\]()-]{1,200}")  # without repetitions, which could take any time to match


@dataclass(frozen=True)
class LowRankChange:
    """What is added to one matrix: scale * up @ down."""

    down: GgufTensor  # [rank, in]
    up: GgufTensor  # [out, rank]
    scale: float


@dataclass(frozen=True)
class LoraAdapter:
    path: Path
    changes: Mapping[str, LowRankChange]  # by the names of tensors in GGUF


def checked_adapters(adapters: Any) -> dict[str, float]:
    """Paths with their weights, from one path, several, or a mapping of paths to weights."""
    if adapters is None:
        return {}
    if isinstance(adapters, str | os.PathLike):
        adapters = [adapters]
    pairs = adapters.items() if isinstance(adapters, Mapping) else [(path, 1.0) for path in adapters]
    checked = {}
    for path, weight in pairs:
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"an adapter is named by its path, not by {path!r}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise InputError(f"the weight of the adapter {path} is {weight!r}, not a number")
        checked[os.fspath(path)] = float(weight)
    return checked


def named_adapters(adapters: Any) -> dict[str, Path]:
    """Paths by name, from one path, several, or names with paths; a path without a name is called as its file."""
    if adapters is None:
        return {}
    if isinstance(adapters, str | os.PathLike):
        adapters = [adapters]
    pairs = adapters.items() if isinstance(adapters, Mapping) else [(None, path) for path in adapters]
    named: dict[str, Path] = {}
    for name, path in pairs:
        if not isinstance(path, str | os.PathLike) or not isinstance(name, str | None):
            raise InputError(f"an adapter is a path, or a name with a path, not {name!r}: {path!r}")
        called = plain_name(path) if name is None else name
        if called in named:
            raise InputError(f"two adapters are called {called!r}; give them names")
        named[called] = Path(path)
    return named


def read_adapter(path: str | os.PathLike[str], model: GgufFile) -> LoraAdapter:
    """An adapter for this model; an error if it is for another."""
    path = Path(path)
    with reading(path):
        changes = _from_gguf(path, model) if is_gguf(path) else _from_peft(path, model)
        for name, change in changes.items():
            _check(path, model, name, change)
    if not changes:
        raise ProgramError(f"{path} changes nothing")
    return LoraAdapter(path, changes)


def merged(model: GgufFile, adapters: Sequence[tuple[LoraAdapter, float]]) -> GgufFile:
    """The model with its matrices changed. Float32 stays so; what is not becomes float16."""
    tensors = _untied(model) if any({EMBEDDING, OUTPUT} & adapter.changes.keys() for adapter, _ in adapters) else {}
    tensors = {**model.tensors, **tensors}
    for name in {name for adapter, _ in adapters for name in adapter.changes}:
        found = [(adapter.changes[name], weight) for adapter, weight in adapters if name in adapter.changes]
        tensors[name] = _merged(tensors[name], [replace(change, scale=change.scale * by) for change, by in found])
    return replace(model, tensors=tensors)


def _untied(model: GgufFile) -> dict[str, GgufTensor]:
    """Embeddings that are the output matrix too, as two matrices: an adapter changes one of them."""
    both = model.tensors.get(EMBEDDING)
    return {} if OUTPUT in model.tensors or both is None else {OUTPUT: replace(both, name=OUTPUT)}


def _merged(tensor: GgufTensor, changes: Sequence[LowRankChange]) -> GgufTensor:
    kind, dtype = ("F32", np.float32) if tensor.type == "F32" else ("F16", np.float16)
    downs = [read_rows(change.down, 0, change.down.dims[0]) * np.float32(change.scale) for change in changes]

    def rows(first: int, count: int) -> np.ndarray:
        total = read_rows(tensor, first, count)
        for change, down in zip(changes, downs, strict=True):
            total = total + read_rows(change.up, first, count) @ down
        return total.astype(dtype)

    return of_rows(tensor, kind, tensor.dims, rows)


def _check(path: Path, model: GgufFile, name: str, change: LowRankChange) -> None:
    tensor = {**model.tensors, **_untied(model)}.get(name)
    if tensor is None:
        raise ProgramError(f"{path} changes {name}, which {model.path.name} does not have: it is for another model")
    rank = change.down.dims[0] if len(change.down.dims) == 2 else 0
    if not rank or change.up.dims != (tensor.dims[0], rank) or change.down.dims != (rank, tensor.dims[-1]):
        shapes = f"{list(change.up.dims)} and {list(change.down.dims)}"
        raise ProgramError(f"{path} has matrices {shapes} for {name} {list(tensor.dims)}: it is for another model")
    if not math.isfinite(change.scale):
        raise ProgramError(f"{path} scales {name} by {change.scale}")


def _from_gguf(path: Path, model: GgufFile) -> dict[str, LowRankChange]:
    file = read_gguf(path)
    kind = file.metadata.get("general.type"), file.metadata.get("adapter.type")
    if kind != ("adapter", "lora"):
        raise ProgramError(f"{path} is not a LoRA adapter, but {kind[0] or 'a model'}")
    if file.architecture != model.architecture:
        raise ProgramError(f"{path} is for a {file.architecture} model; {model.path.name} is a {model.architecture}")
    alpha = file.metadata.get("adapter.lora.alpha", 0.0)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise ProgramError(f"{path}: adapter.lora.alpha is {alpha!r}")
    pairs: dict[str, dict[str, GgufTensor]] = {}
    for name, tensor in file.tensors.items():
        target, _, side = name.rpartition(".lora_")
        if side not in ("a", "b"):
            raise UnsupportedError(f"{path} has the tensor {name}; only pairs of lora_a and lora_b are supported")
        pairs.setdefault(target, {})[side] = tensor
    changes = {}
    for target, pair in pairs.items():
        down, up = _pair(path, target, pair, "a", "b")
        if target == EMBEDDING:  # whose rows are looked up in lora_a
            down, up = transposed(up), down
        changes[target] = LowRankChange(down, up, alpha / max(down.dims[0], 1) if alpha else 1.0)
    return changes


def _pair(path: Path, target: str, pair: Mapping[str, Any], down: str, up: str) -> tuple[Any, Any]:
    if len(pair) != 2 or not pair[down].dims:
        raise ProgramError(f"{path} has one matrix for {target}, not two")
    return pair[down], pair[up]


def _from_peft(folder: Path, model: GgufFile) -> dict[str, LowRankChange]:
    if not (folder / PEFT_CONFIG).is_file():
        raise InputError(f"{folder} is neither a GGUF adapter nor a PEFT folder with {PEFT_CONFIG}")
    config = read_json(folder / PEFT_CONFIG)
    for name, wanted in _NEEDED.items():
        if config.get(name, wanted) != wanted:
            raise UnsupportedError(f"{folder}: {name} is {shown(config[name])}; only {wanted!r} is supported")
    for name in _ABSENT:
        if config.get(name):
            raise UnsupportedError(f"{folder}: {name} is {shown(config[name])}; only low-rank matrices are supported")
    recipe = next((recipe for recipe in RECIPES.values() if recipe.architecture == model.architecture), None)
    if recipe is None:
        raise UnsupportedError(f"PEFT adapters of {model.architecture} models are not supported; GGUF ones are")
    names = get_tensor_name_map(ARCHITECTURE[model.architecture], _layers(model))
    heads = model.get("attention.head_count")
    groups = model.get("attention.head_count_kv", heads)
    sizes = {"num_attention_heads": heads, "num_key_value_heads": groups}
    sizes |= {"new_decoder_architecture": True, "num_kv_heads": groups}  # as Falcon says it
    base = ModelConfig(folder / PEFT_CONFIG, sizes)
    pairs: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in read_shards(folder, "adapter_model").items():
        if copied := _COPY.fullmatch(name):  # PEFT saves what embeddings were before
            _check_copy(folder, model, mapped_name(folder, names, f"{copied[1]}.weight"), tensor)
            continue
        found = _PEFT_NAME.fullmatch(name)
        if found is None:
            raise UnsupportedError(f"{folder} has the tensor {name}; only pairs of lora_A and lora_B are supported")
        pairs.setdefault(found[1], {})[f"{found[2] or ''}{found[3]}"] = tensor
    changes = {}
    for source, pair in pairs.items():
        embeds = "embedding_A" in pair
        down, up = _pair(folder, source, pair, *(("embedding_B", "embedding_A") if embeds else "AB"))
        target = mapped_name(folder, names, f"{source}.weight")
        down, up = as_floats(folder, target, down), as_floats(folder, target, up)
        if embeds:  # A looks up the columns of tokens
            down, up = transposed(down), transposed(up)
        turned = recipe.change(base, up)  # its rows are those of the weight
        changes[target] = LowRankChange(down, turned, _peft_scale(folder, config, source, down.dims[0]))
    return changes


def _check_copy(folder: Path, model: GgufFile, target: str, tensor: StoredTensor) -> None:
    known = {**model.tensors, **_untied(model)}.get(target)
    if known is None or known.dims != tensor.dims:
        raise UnsupportedError(f"{folder} has {target} {list(tensor.dims)}: its model was given other tokens")


def _layers(model: GgufFile) -> int:
    """As many as there are tensors of, at most."""
    layers = model.get("block_count")
    return layers if isinstance(layers, int) and 0 < layers <= len(model.tensors) else 1


def _peft_scale(folder: Path, config: Mapping[str, Any], source: str, rank: int) -> float:
    alpha = config.get("lora_alpha", rank)
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise ProgramError(f"{folder}: alpha_pattern is {shown(patterns)}, not an object")
    for pattern, own in patterns.items():
        if not _PATTERN.fullmatch(pattern):
            raise UnsupportedError(f"{folder}: alpha_pattern has {shown(pattern)}; only plain patterns are supported")
        try:
            found = re.match(rf"(.*\.)?({pattern})$", source)
        except re.error as error:
            raise ProgramError(f"{folder}: alpha_pattern has {shown(pattern)}, which is no pattern: {error}") from None
        if found is not None:
            alpha = own
            break
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise ProgramError(f"{folder}: lora_alpha is {alpha!r}")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank) if rank else 0.0
