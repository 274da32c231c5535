"""A Whisper model of whisper.cpp as a `.pte` program, with the methods that ExecuTorch's speech runner calls.

`encoder(input_features [1, mels, frames])` and `text_decoder(input_ids [1, S], encoder_output, cache_position [S])`,
in float32, lowered for Vulkan. Beside `out.pte` goes `out.tokenizer.json`, which `hightide.Transcriber` finds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, decoders

from hightide.errors import InputError, ProgramError
from hightide.exporter import exporting, need_exporter
from hightide.formats.whisper_ggml import WhisperFile, WhisperSizes, read_whisper
from hightide.llm.pretokenizers import SPELLING, byte_level, merges_by_score
from hightide.llm.text_cuts import pretokenizer
from hightide.speech.whisper_tokens import END, START, special_tokens

MAX_TOKENS = 32  # of one call: a prompt has four


def export_whisper(
    model: str | os.PathLike[str], out: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
) -> Any:
    """Writes the program and its tokenizer; returns the torch modules by method. `metadata` adds constant methods."""
    out = Path(out)
    if out.suffix != ".pte" or not out.parent.is_dir():
        raise InputError(f"{out} must end in .pte and be in a folder that exists")
    file = read_whisper(model)
    need_exporter()
    tokens = spelled_tokens(file)
    ids = {token: id for id, token in enumerate(tokens)}
    constants = {
        "decoder_start_token_id": ids[START],
        "get_eos_ids": [ids[END]],
        "get_max_seq_len": file.sizes.text_context,
        "get_vocab_size": file.sizes.vocabulary,
    }
    with exporting():
        modules = _modules(file)
        lower_whisper(modules, file.sizes, out, constants | dict(metadata or {}))
    write_tokenizer_json(tokens, tokenizer_json_path(out))
    return modules


def tokenizer_json_path(program: Path) -> Path:
    return program.with_suffix(".tokenizer.json")


def spelled_tokens(file: WhisperFile) -> list[str]:
    """All tokens by id, in GPT-2's byte alphabet; behind those of the file come the special ones."""
    plain = file.tokens[:-1] if file.tokens[-1:] == [END.encode()] else file.tokens  # some files have it, some not
    special = special_tokens(file.sizes.vocabulary - len(plain))
    return ["".join(SPELLING[byte] for byte in token) for token in plain] + special


def write_tokenizer_json(tokens: list[str], path: Path) -> None:
    """Byte-level BPE; a token's rank is its id, as in tiktoken."""
    first = tokens.index(END)
    ids = {token: id for id, token in enumerate(tokens)}
    merges = merges_by_score({token: -id for token, id in ids.items() if id < first}, ids)
    backend = byte_level(tokens, merges, pretokenizer("gpt-2"))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in tokens[first:]])
    backend.save(str(path), pretty=False)


def lower_whisper(modules: Mapping[str, Any], sizes: WhisperSizes, out: Path, constants: Mapping[str, Any]) -> None:
    """Exports the modules for Vulkan, and writes them as one program."""
    import torch
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from torch.export import Dim, export

    features = torch.zeros(1, sizes.mels, 2 * sizes.audio_context)
    heard = torch.zeros(1, sizes.audio_context, sizes.audio_width)
    tokens = Dim("S", min=1, max=min(MAX_TOKENS, sizes.text_context - 1))
    step = torch.zeros(1, 3, dtype=torch.int64), heard, torch.arange(3)
    methods = {
        "encoder": export(modules["encoder"], (features,), strict=False),
        "text_decoder": export(
            modules["text_decoder"], step, dynamic_shapes=({1: tokens}, None, {0: tokens}), strict=False
        ),
    }
    edge = to_edge_transform_and_lower(
        methods,
        partitioner=[VulkanPartitioner({"require_dynamic_shapes": True})],
        constant_methods=dict(constants),
        compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
    )
    del methods
    with out.open("wb") as written:
        edge.to_executorch().write_to_file(written)


def _modules(file: WhisperFile) -> dict[str, Any]:
    """The encoder and the text decoder with the file's weights."""
    torch, made = import_module("torch"), import_module("hightide.speech.whisper_torch")
    modules = {"encoder": made.AudioEncoder(file.sizes), "text_decoder": made.TextDecoder(file.sizes)}
    for prefix, module in (("encoder.", modules["encoder"]), ("decoder.", modules["text_decoder"])):
        own = {name: tuple(weight.shape) for name, weight in module.named_parameters()}
        given = {name.removeprefix(prefix): x for name, x in file.tensors.items() if name.startswith(prefix)}
        if own.keys() != given.keys():
            odd = sorted(own.keys() ^ given.keys())[0]
            raise ProgramError(f"{file.path}: tensor {prefix}{odd} is missing or unknown")
        module.load_state_dict({name: torch.from_numpy(_fitted(file, x, own[name])) for name, x in given.items()})
        module.eval().requires_grad_(False)
    return modules


def _fitted(file: WhisperFile, weight: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """whisper.cpp keeps biases of convolutions as columns."""
    if weight.size != np.prod(dims):
        raise ProgramError(f"{file.path} has a tensor of {list(weight.shape)} where {list(dims)} belongs")
    return weight.reshape(dims)
