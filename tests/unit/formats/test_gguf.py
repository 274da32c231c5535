"""GGUF files, good and bad: a bad one is refused in one sentence, soon and in little memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.gguf import ALIGNMENT, GgufFile, GgufTensor, is_gguf, read_gguf
from hightide.graph.blob import Blob
from hightide.llm.models import build_graph

MODELS = Path(__file__).parents[2] / "models"
SMALL = MODELS / "gemma3_global.gguf"
NAMES = sorted(path.stem for path in MODELS.glob("*.gguf"))
MEMORY_LIMIT = 8 << 20  # bytes; the files are of 200 kB and less
pytestmark = pytest.mark.usefixtures("little_memory")
REFUSALS = (ProgramError, UnsupportedError)

U32, STRING, ARRAY = 4, 8, 9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def header(fields: bytes = b"", field_count: int = 0, infos: bytes = b"", tensor_count: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, field_count) + fields + infos


def info(name: str, dims: tuple[int, ...], kind: int, offset: int = 0) -> bytes:
    """A tensor's entry; dims as in the file, innermost first."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def refusal(path: Path, data: bytes) -> str:
    """The sentence that a file of these bytes is refused with."""
    path.write_bytes(data)
    with pytest.raises(REFUSALS) as refused:
        build_graph(read_gguf(path), 32, 8)
    sentence = str(refused.value)
    assert path.name in sentence and "\n" not in sentence
    return sentence


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_as_the_gguf_package_reads_it(name: str) -> None:
    path = MODELS / f"{name}.gguf"
    file, reference = read_gguf(path), gguf.GGUFReader(path)
    assert is_gguf(path)
    fields = {key: field.contents() for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    assert file.metadata == fields
    assert list(file.tensors) == [tensor.name for tensor in reference.tensors]
    for tensor in reference.tensors:
        mine = file.tensors[tensor.name]
        assert (mine.type, mine.dims) == (tensor.tensor_type.name, tuple(reversed(tensor.shape.tolist())))
        assert bytes(mine.data.view()) == tensor.data.tobytes()


def test_every_kind_of_field_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "fields.gguf", "llama")
    given: dict[str, Any] = {
        "uint8": 200,
        "int8": -100,
        "uint16": 60_000,
        "int16": -30_000,
        "uint32": 4_000_000_000,
        "int32": -2_000_000_000,
        "uint64": 1 << 63,
        "int64": -(1 << 62),
        "float32": 0.5,
        "float64": 0.1,
        "bool": True,
        "string": "déjà ▁vu",
    }
    for kind, value in given.items():
        getattr(writer, f"add_{kind}")(f"test.{kind}", value)
    writer.add_array("test.strings", ["a", "", "ü"])
    writer.add_array("test.floats", [0.25, -1.0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = read_gguf(tmp_path / "fields.gguf").metadata
    expected = {f"test.{kind}": value for kind, value in given.items()}
    assert read == expected | {
        "general.architecture": "llama",
        "test.strings": ["a", "", "ü"],
        "test.floats": [0.25, -1.0],
    }


BAD_HEADERS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "a zip file": (b"PK\3\4" + bytes(60), "is not a GGUF file"),
    "only its magic": (b"GGUF", "truncated"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
    "no fields": (header(), "nameless"),
    "too many fields": (header(field_count=1 << 40), "claims 1099511627776 fields"),
    "too many tensors": (header(tensor_count=1 << 62), "claims 4611686018427387904 tensors"),
    "most fields": (header(field_count=(1 << 64) - 1), "claims"),
    "a long key": (header(struct.pack("<Q", 1 << 50) + bytes(20), 1), "truncated"),
    "an unknown field type": (header(text("a") + struct.pack("<IQ", 13, 0), 1), "unknown type 13"),
    "an array too long": (header(text("a") + struct.pack("<IIQ", ARRAY, U32, 1 << 60), 1), "items of a"),
    "strings too many": (header(text("a") + struct.pack("<IIQ", ARRAY, STRING, 1 << 60), 1), "items of a"),
    "a string too long": (
        header(text("a") + struct.pack("<IIQQ", ARRAY, STRING, 1, 1 << 60) + bytes(9), 1),
        "truncated",
    ),
    "arrays in an array": (header(text("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(20), 1), "unknown type 9"),
    "an alignment of 0": (header(text("general.alignment") + struct.pack("<II", U32, 0), 1), "alignment cannot be 0"),
    "too many dims": (header(infos=info("t", (1,) * 5, 0), tensor_count=1), "5 dims"),
    "a huge dim": (header(infos=info("t", (1 << 50, 1), 0), tensor_count=1), "more than the file holds"),
    "a huge product": (header(infos=info("t", (30, 30, 30, 30), 0) + bytes(64), tensor_count=1), "truncated"),
    "a far offset": (header(infos=info("t", (1,), 0, (1 << 64) - 64) + bytes(64), tensor_count=1), "truncated"),
    "an unknown tensor type": (header(infos=info("t", (32,), 999), tensor_count=1), "unknown type 999"),
    "half a block": (header(infos=info("t", (16,), 2), tensor_count=1), "not a multiple of 32"),
    "a scalar in blocks": (header(infos=info("t", (), 2) + bytes(64), tensor_count=1), "not a multiple of 32"),
    "twins": (header(infos=info("t", (1,), 0) * 2 + bytes(64), tensor_count=2), "two tensors named t"),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_a_bad_header_is_refused(case: str, tmp_path: Path) -> None:
    data, sentence = BAD_HEADERS[case]
    assert sentence in refusal(tmp_path / "bad.gguf", data)


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.gguf"):
        assert not is_gguf(path)
        with pytest.raises(ProgramError, match="cannot read"):
            read_gguf(path)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    data = SMALL.read_bytes()
    tensors = read_gguf(SMALL).tensors.values()
    start, end = min(t.data.offset for t in tensors), max(t.data.offset + t.data.length for t in tensors)
    places = {*range(0, start, 43), *range(start - 20, start + 20), *range(start, end, 4999), end - 1}
    for length in sorted(places):
        refusal(tmp_path / "cut.gguf", data[:length])


# ---- files that are read well and make no model


def fields(**values: Any) -> Callable[[GgufFile], GgufFile]:
    """A change of fields of the architecture; None takes one away."""

    def change(file: GgufFile) -> GgufFile:
        new = {f"{file.architecture}.{key.replace('__', '.')}": value for key, value in values.items()}
        return replace(file, metadata={k: v for k, v in (file.metadata | new).items() if v is not None})

    return change


def tensor(name: str, **values: Any) -> Callable[[GgufFile], GgufFile]:
    """A change of a tensor."""
    return lambda file: replace(file, tensors=file.tensors | {name: replace(file.tensors[name], **values)})


BAD_MODELS: dict[str, tuple[Callable[[GgufFile], GgufFile], str]] = {
    "an unknown architecture": (
        lambda file: replace(file, metadata=file.metadata | {"general.architecture": "mamba"}),
        "is a mamba model; llama, ",
    ),
    "no embedding length": (fields(embedding_length=None), "llama.embedding_length is missing"),
    "no epsilon": (fields(attention__layer_norm_rms_epsilon=None), "layer_norm_rms_epsilon is missing"),
    "no heads": (fields(attention__head_count=0), "head_count is 0, not a positive integer"),
    "a word for a number": (fields(block_count="two"), "is 'two', not a number"),
    "not a number": (fields(rope__freq_base=float("nan")), "not a number"),
    "a theta of 0": (fields(rope__freq_base=0.0), "not a number of at least 2"),
    "heads that differ": (fields(attention__head_count_kv=[2, 1]), "do not fit together"),
    "heads that do not divide": (fields(attention__head_count_kv=3), "4 query heads and 3 kv heads"),
    "a huge head": (fields(attention__key_length=1 << 31), "2147483648 elements"),
    "a huge count of heads": (
        fields(attention__head_count=1 << 31, attention__head_count_kv=1 << 31),
        "do not fit together",
    ),
    "other values than keys": (fields(attention__value_length=8), "values of a different length"),
    "a huge count of layers": (fields(block_count=1 << 31), "has no tensor blk.2."),
    "a huge rotary part": (fields(rope__dimension_count=1 << 30), "rotates 1073741824 elements of heads that have 16"),
    "an unknown scaling": (fields(rope__scaling__type="dynamic"), "by dynamic; none, linear"),
    "an unknown type": (tensor("blk.0.attn_q.weight", type="NVFP4"), "attn_q.weight is NVFP4; Q4_0, Q4_1"),
    "a vector for a matrix": (tensor("output.weight", dims=(131 * 64,)), "not two"),
    "an empty matrix": (tensor("output.weight", dims=(0, 64)), "has dims [0, 64]"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_a_model_that_makes_no_sense_is_refused(case: str) -> None:
    change, sentence = BAD_MODELS[case]
    with pytest.raises(REFUSALS) as refused:
        build_graph(change(read_gguf(MODELS / "llama.gguf")), 32, 8)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


# A model of each architecture and form.
FAMILIES = [
    *("qwen2", "qwen3", "gemma", "gemma2", "gemma3_global", "gemma3n", "phi2", "phi3", "mistral3", "granite", "olmo2"),
    *("smollm3", "glm4", "command_r_plus", "cohere2", "stablelm", "stablelm_12b", "starcoder2", "gpt2", "gptneox"),
    "falcon_40b",
]
OPTIONAL = ("bias", "output.weight", "rope_freqs.weight", "rope_factors_long.weight")


@pytest.mark.parametrize("name", ["llama_bias", *FAMILIES])
def test_a_missing_tensor_is_named(name: str) -> None:
    file = read_gguf(MODELS / f"{name}.gguf")
    for missing in file.tensors:
        if not missing.endswith(OPTIONAL):
            rest = {key: value for key, value in file.tensors.items() if key != missing}
            with pytest.raises(ProgramError, match=f"has no tensor {missing}"):
                build_graph(replace(file, tensors=rest), 32, 8)


@pytest.mark.parametrize("name", ["llama_bias", "llama_llama3", "phi3_longrope", *FAMILIES])
def test_a_tensor_of_other_dims_is_refused(name: str) -> None:
    file = read_gguf(MODELS / f"{name}.gguf")
    for given in file.tensors.values():
        for other in shrunk(given):
            if given.name in ("token_embd.weight", "output.weight") and other.dims[-1] == given.dims[-1]:
                continue  # a smaller vocabulary is fine
            if given.name == "rope_factors_short.weight":
                continue  # not of this context
            with pytest.raises(REFUSALS):
                build_graph(replace(file, tensors=file.tensors | {given.name: other}), 48, 8)
                raise AssertionError(f"{given.name} {list(other.dims)} was taken for {list(given.dims)}")


def shrunk(given: GgufTensor) -> Iterator[GgufTensor]:
    """The tensor with half of its rows, and of its columns."""
    for n in range(len(given.dims)):
        dims = tuple(d // 2 if n == m else d for m, d in enumerate(given.dims))
        length = given.data.length * int(np.prod(dims)) // int(np.prod(given.dims))
        if dims[-1] % ALIGNMENT == 0 or given.type == "F32":
            yield replace(given, dims=dims, data=Blob(given.data.source, given.data.offset, length))
