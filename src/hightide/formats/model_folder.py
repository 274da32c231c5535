"""A Hugging Face folder as the GGUF file that it could be: the same fields, the same names and weights.

So one file per architecture serves both. Nothing is converted ahead: what llama.cpp's converter changes in the weights
is done to the rows that are read.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, TensorNameMap, get_tensor_name_map

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.checks import nearest
from hightide.formats.encoder_recipes import ENCODER_RECIPES
from hightide.formats.folder_recipes import RECIPES, FolderRecipe
from hightide.formats.fp8_weights import fp8_weights
from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.formats.mixture_recipes import MIXTURE_RECIPES
from hightide.formats.model_config import ModelConfig
from hightide.formats.model_tensors import given, of_rows, stacked, transposed
from hightide.formats.mxfp4_weights import mxfp4_weights
from hightide.formats.packed_weights import unpacked
from hightide.formats.rerankers import with_rank_head
from hightide.formats.safetensors import StoredTensor, read_json, read_shards

CONFIG = "config.json"
KINDS_OF_FOLDERS = {**RECIPES, **MIXTURE_RECIPES, **ENCODER_RECIPES}  # by `model_type`
# How weights of few bits become GGUF's, by `quant_method`: (tensors as they are, those that were in few bits).
QUANT_METHODS = {
    "gptq": unpacked,
    "awq": unpacked,
    "mxfp4": mxfp4_weights,
    "fp8": fp8_weights,
    "compressed-tensors": fp8_weights,
}
FLOATS = ("F32", "F16", "BF16")  # which GGUF has, too
ARCHITECTURE = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
# Tensors that hold no weights, and the parts of a model that see or hear.
UNUSED_ENDS = (".attention.masked_bias", ".attention.bias", ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
# Tensors of one head or one expert, of which GGUF has all in one: (what they are of, number, the rest).
ONE_OF_MANY = re.compile(r"(.+\.(?:[qk]_layernorm|experts))(?:\.norms)?\.(\d{1,5})((?:\.\w+)?\.weight)")
OTHER_PARTS = ("vision", "visual", "audio", "projector")


def is_model_folder(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / CONFIG).is_file()


def read_folder(path: str | os.PathLike[str]) -> GgufFile:
    """Reads config and headers; tensor data stays in the files."""
    folder = Path(path).resolve()
    values = read_json(folder / CONFIG)
    kind = values.get("model_type")
    recipe = KINDS_OF_FOLDERS.get(kind) if isinstance(kind, str) else None
    if recipe is None:
        known, close = ", ".join(KINDS_OF_FOLDERS), nearest(str(kind), KINDS_OF_FOLDERS)
        raise UnsupportedError(f"{folder} is a {kind or 'nameless'} model (model_type); {known} are supported{close}")
    text = values.get("text_config")
    config = ModelConfig(folder / CONFIG, {**recipe.defaults, **values, **(text if isinstance(text, dict) else {})})
    tensors = _tensors(folder, config, recipe)
    fields = {f"{recipe.architecture}.{name}": value for name, value in _fields(config, recipe).items()}
    metadata = {"general.architecture": recipe.architecture, "general.name": folder.name, **fields}
    return with_rank_head(GgufFile(folder, metadata, tensors))


def _fields(config: ModelConfig, recipe: FolderRecipe) -> dict[str, Any]:
    fields = config.fields() | recipe.fields(config)
    return {name: value for name, value in fields.items() if value is not None}


def _tensors(folder: Path, config: ModelConfig, recipe: FolderRecipe) -> dict[str, GgufTensor]:
    stored = read_shards(folder)
    if not stored:
        raise ProgramError(f"{folder} has no tensors")
    if config.layers > len(stored):  # or the map of names would take any amount of memory
        raise ProgramError(f"{folder} has {len(stored)} tensors for {config.layers} layers")
    plain, packed = _of_few_bits(folder, config, stored)
    names = get_tensor_name_map(ARCHITECTURE[recipe.architecture], config.layers)
    tensors: dict[str, GgufTensor] = {}
    stacks: dict[str, dict[int, GgufTensor]] = {}
    every: dict[str, StoredTensor | GgufTensor] = {**plain, **packed}
    for name, tensor in every.items():
        known = None if _is_unused(name) else recipe.rename(config, name)
        if known is None:
            continue
        for part, held in recipe.parts(config, known, as_floats(folder, name, tensor)).items():
            if item := ONE_OF_MANY.fullmatch(part):
                mapped = mapped_name(folder, names, item[1] + item[3])
                stacks.setdefault(mapped, {})[int(item[2])] = held
                continue
            mapped = mapped_name(folder, names, part)
            if mapped == "output.weight" and config.get("tie_word_embeddings"):
                continue
            if mapped in tensors:
                raise ProgramError(f"{folder} has {mapped} twice, as {name} and under another name")
            read = replace(held, name=mapped)
            tensors[mapped] = recipe.change(config, transposed(read) if mapped.endswith(recipe.transposed) else read)
    for name, items in stacks.items():
        if sorted(items) != list(range(len(items))):
            raise ProgramError(f"{folder} lacks some of the tensors of {name}")
        tensors[name] = stacked(name, [items[n] for n in range(len(items))])
    arrays = config.rope_freqs() | recipe.extra(config)
    return tensors | {name: given(name, array) for name, array in arrays.items()}


def _of_few_bits(
    folder: Path, config: ModelConfig, stored: dict[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, GgufTensor]]:
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        return stored, {}
    method = str(settings.get("quant_method"))
    if method not in QUANT_METHODS:
        known = ", ".join(QUANT_METHODS)
        raise UnsupportedError(f"{folder} is quantised by {method} (quant_method); {known} are supported")
    return QUANT_METHODS[method](folder, settings, stored)


def _is_unused(name: str) -> bool:
    return name.endswith(UNUSED_ENDS) or any(part in name for part in OTHER_PARTS)


def mapped_name(folder: Path, names: TensorNameMap, name: str) -> str:
    """The name in GGUF; that of a text model may be inside another's, or lack the usual beginning."""
    plain = name.replace("language_model.", "")
    for known in (plain, f"model.{plain}", f"transformer.{plain}"):
        if mapped := names.get_name(known, try_suffixes=(".weight", ".bias")):
            return mapped
    raise UnsupportedError(f"{folder} has a tensor that its architecture does not have: {name}")


def as_floats(folder: Path, name: str, tensor: StoredTensor | GgufTensor) -> GgufTensor:
    """A tensor under its name in GGUF."""
    if isinstance(tensor, GgufTensor):
        return replace(tensor, name=name)
    if tensor.type in FLOATS:
        return GgufTensor(name, tensor.type, tensor.dims, tensor.data)
    if tensor.type != "F64":
        raise UnsupportedError(f"{folder}: tensor {name} is {tensor.type}; only floats are supported")
    width = tensor.dims[-1] if tensor.dims else 1

    def rows(first: int, count: int) -> np.ndarray:
        return np.frombuffer(tensor.data.region(8 * first * width, 8 * count * width)).astype(np.float32)

    return of_rows(GgufTensor(name, "F32", tensor.dims, tensor.data), "F32", tensor.dims, rows)
