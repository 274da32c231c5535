"""Safetensors files and folders: what is read, and that damaged ones are refused by a sentence."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import safetensors_bytes

from hightide.errors import HightideError, ProgramError, UnsupportedError
from hightide.formats.model_folder import is_model_folder, read_folder
from hightide.formats.safetensors import MAX_HEADER, read_safetensors, read_shards


def written(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(kind: Any = "F32", shape: Any = (1,), place: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": place}


def test_tensors_are_read_where_they_are(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4), np.float16), "c": np.int32(7)}
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors_bytes({name: np.asarray(array) for name, array in arrays.items()}))
    read = read_safetensors(path)
    assert {name: (t.type, t.dims) for name, t in read.items()} == {
        "a": ("F32", (2, 3)),
        "b": ("F16", (0, 4)),
        "c": ("I32", ()),
    }
    np.testing.assert_array_equal(np.frombuffer(read["a"].data.view(), np.float32), np.arange(6))


HOSTILE: dict[str, tuple[Any, bytes, int | None]] = {
    "too short": (b"", b"", 1 << 62),
    "header beyond the file": ({}, b"", 100),
    "not JSON": (b"{nonsense", b"", None),
    "a list": ([1], b"", None),
    "deeply nested": (b"[" * 100_000, b"", None),
    "a name twice": (b'{"a":{},"a":{}}', b"", None),
    "no object": ({"a": 3}, b"", None),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, b"1234", None),
    "negative dims": ({"a": entry(shape=[-1])}, b"1234", None),
    "dims that are no integers": ({"a": entry(shape=[1.5])}, b"1234", None),
    "true as a dim": ({"a": entry(shape=[True])}, b"1234", None),
    "many dims": ({"a": entry(shape=[1] * 100)}, b"1234", None),
    "huge dims": ({"a": entry(shape=[1 << 60, 1 << 60])}, b"1234", None),
    "offsets beyond the file": ({"a": entry(place=[0, 1 << 60])}, b"1234", None),
    "offsets backwards": ({"a": entry(place=[4, 0])}, b"1234", None),
    "a hole": ({"a": entry(place=[4, 8])}, b"12345678", None),
    "an overlap": ({"a": entry(), "b": entry()}, b"1234", None),
    "data left over": ({"a": entry()}, b"12345678", None),
    "a type that is no name": ({"a": entry(kind=["F32"])}, b"1234", None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    header, data, length = HOSTILE[name]
    with pytest.raises(HightideError):
        read_safetensors(written(tmp_path / "x.safetensors", header, data, length))


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="F4_E2M1"):
        read_safetensors(written(tmp_path / "x.safetensors", {"a": entry(kind="F4_E2M1")}, b"1234"))


def test_a_header_has_a_most(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER + 1))
        file.truncate(MAX_HEADER + 100)
    with pytest.raises(ProgramError, match="is the most"):
        read_safetensors(path)


@pytest.mark.parametrize(
    "places", [None, [], {"a": "../x.safetensors"}, {"a": 3}, {"a": ".."}, {"a": "gone.safetensors"}]
)
def test_an_index_names_files_beside_it(places: Any, tmp_path: Path) -> None:
    tmp_path.joinpath("model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), "utf-8")
    with pytest.raises(ProgramError):
        read_shards(tmp_path)


def test_an_index_is_complete(tmp_path: Path) -> None:
    written(tmp_path / "one.safetensors", {"a": entry()}, b"1234")
    places = {"a": "one.safetensors", "b": "one.safetensors"}
    tmp_path.joinpath("model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), "utf-8")
    with pytest.raises(ProgramError, match="lacks the tensor b"):
        read_shards(tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        *({}, {"model_type": 3}, {"model_type": "llama"}, {"model_type": "llama", "num_hidden_layers": 1 << 30}),
        {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": True},
        {"model_type": "llama", "num_hidden_layers": 1, "rope_parameters": 3},
        {"model_type": "llama", "num_hidden_layers": 1, "rope_parameters": {"full_attention": 3}},
        {"model_type": "gemma3_text", "num_hidden_layers": 1, "layer_types": 3},
        {"model_type": "phi3", "num_hidden_layers": 1, "rope_scaling": {"long_factor": 3}},
    ],
)
def test_configs_that_make_no_sense(config: dict[str, Any], tmp_path: Path) -> None:
    tmp_path.joinpath("config.json").write_text(json.dumps(config), "utf-8")
    sizes = {"model.layers.0.self_attn.q_proj.weight": np.zeros((8, 8), np.float32)}
    tmp_path.joinpath("model.safetensors").write_bytes(safetensors_bytes(sizes))
    assert is_model_folder(tmp_path)
    with pytest.raises(HightideError):
        read_folder(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    tmp_path.joinpath("config.json").write_text('{"model_type": "llama"}', "utf-8")
    with pytest.raises(ProgramError, match="safetensors"):
        read_folder(tmp_path)
