"""Compares folders with what llama.cpp's converter makes of them: `python check_converter.py LLAMA_CPP FOLDER ...`.

Needs torch and transformers, and a checkout of llama.cpp whose `gguf-py` is on PYTHONPATH. All weights must be the
same, and the fields that it writes; a folder may have more of these. With the llama.cpp of llama-cpp-python 0.3.36 and
transformers 5.23, all folders of make_folders.py that it converts are the same, but for fields that it assumes and a
config says (of phi and falcon), and for groups of experts that deepseek_v2_greedy has in its config and does not use.
It cannot convert gpt2, gpt_neox, falcon with one key head, stablelm_norms and ministral as transformers 5 saves them,
and cohere2 only with a `rotary_pct`, which older configs have.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, sys.argv[1])
import gguf
from conversion import ModelBase, base, get_model_class

from hightide.formats.gguf import GgufFile, GgufTensor, read_gguf
from hightide.formats.model_folder import read_folder
from hightide.formats.model_tensors import read_rows

# Fields that the converter writes and hightide has no use for.
NOT_COMPARED = ("vocab_size", "file_type")


def converted(folder: Path, out: Path) -> GgufFile:
    hparams = ModelBase.load_hparams(folder, False)
    kind = get_model_class(base.get_model_architecture(hparams, base.ModelType.TEXT))
    kind.set_vocab = lambda self: None
    model = kind(folder, gguf.LlamaFileType.ALL_F32, out)
    model.write()
    return read_gguf(out)


def array(tensor: GgufTensor) -> np.ndarray:
    rows = int(np.prod(tensor.dims[:-1]))
    return read_rows(tensor, 0, rows).reshape(tensor.dims)


def differences(ours: GgufFile, theirs: GgufFile) -> list[str]:
    found = []
    for key, value in theirs.metadata.items():
        name = key.removeprefix(f"{theirs.architecture}.")
        if name != key and name not in NOT_COMPARED:
            own = ours.metadata.get(key)
            same = own == value or (isinstance(value, float) and own is not None and np.isclose(own, value, rtol=1e-6))
            if not same:
                found.append(f"{key} is {own!r}, not {value!r}")
    for name in sorted(ours.tensors.keys() | theirs.tensors.keys()):
        if name not in ours.tensors or name not in theirs.tensors:
            found.append(f"{name} is only {'theirs' if name in theirs.tensors else 'ours'}")
            continue
        own, other = array(ours.tensors[name]), array(theirs.tensors[name])
        if own.shape != other.shape or np.abs(own - other).max() > 1e-6:
            found.append(f"{name} differs: {own.shape} and {other.shape}")
    return found


if __name__ == "__main__":
    for folder in map(Path, sys.argv[2:]):
        with tempfile.TemporaryDirectory() as temporary:
            try:
                theirs = converted(folder, Path(temporary) / "converted.gguf")
                found = differences(read_folder(folder), theirs)
            except Exception:
                found = [traceback.format_exc(limit=-3)]
        print(folder.name, "is the same" if not found else "\n  ".join(["differs:", *found]), flush=True)
