"""A GGUF model in several files, `name-00001-of-00003.gguf`: any of them opens all."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hightide.errors import ProgramError
from hightide.formats.gguf import GgufFile, GgufTensor, read_gguf

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def split_paths(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a model in order, as the name of one of them says; [path] if it says nothing."""
    path = Path(path)
    named = _NAME.fullmatch(path.name)
    if named is None or not 1 <= int(named[2]) <= int(named[3]):
        return [path]
    return [path.with_name(f"{named[1]}-{n + 1:05}-of-{named[3]}.gguf") for n in range(int(named[3]))]


def read_split_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """A GGUF file, with the tensors of all files that belong to it; ProgramError that names a missing one."""
    opened = read_gguf(path)
    count, paths = opened.metadata.get("split.count", 1), split_paths(path)
    if isinstance(count, bool) or not isinstance(count, int):
        raise ProgramError(f"{path}: split.count is {count!r}, not a number of files")
    if count in (0, 1):
        return opened
    if count != len(paths):
        raise ProgramError(f"{path} is one of {count} files, but its name does not end in -00001-of-{count:05}.gguf")
    tensors: dict[str, GgufTensor] = {}
    metadata: dict[str, Any] = {}
    for number, part in enumerate(paths):
        if not part.is_file():
            raise ProgramError(f"{part} is missing: {Path(path).name} is one of {count} files")
        file = read_gguf(part)
        if (file.metadata.get("split.no"), file.metadata.get("split.count")) != (number, count):
            raise ProgramError(f"{part} does not say that it is file {number + 1} of {count}")
        if twice := tensors.keys() & file.tensors.keys():
            raise ProgramError(f"{part} has the tensor {min(twice)}, which is in another file as well")
        tensors |= file.tensors
        metadata = {**file.metadata, **metadata}  # the first file has the fields of the model
    total = metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise ProgramError(f"{path}: its {count} files have {len(tensors)} tensors, and should have {total}")
    return GgufFile(paths[0], metadata, tensors)
