"""Pages on disk: what one process has read of a prompt, another need not read again.

One file per full page, named as the page is, in a folder for each model and way to compute it. Several processes may
use the same folder: a file is there whole or not at all, and one that vanishes or is damaged counts as absent.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np

from hightide.errors import HightideError, InputError
from hightide.gpu.measurements import hightide_version
from hightide.graph.values import TensorValue
from hightide.llm.decoder import RaggedDecoder
from hightide.llm.state_file import read_state, write_state

MEMBER_BYTES = 512  # of an array in an archive besides its data, at most
STALE_SECONDS = 3600.0  # after which a file that somebody was writing is given up
_FOLDER = re.compile(r"[0-9a-f]{32}")
_PAGE = re.compile(r"[0-9a-f]{32}\.npz")
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.npz\.[0-9a-f]{8}")

Page = list[np.ndarray]  # keys and values of the tokens of a page, layer by layer


class PrefixStore:
    """The pages of one model in a folder that takes at most `size` bytes, pages of other models included."""

    def __init__(
        self, folder: str | os.PathLike[str], size: int, decoder: RaggedDecoder, fingerprint: Sequence[int]
    ) -> None:
        self.folder, self.size = Path(folder).absolute(), size
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"prefix_cache is not a folder: {folder}")
        empty = decoder.read_pages([0], decoder.page)
        self._layout = decoder.state_layout(decoder.page)
        self._types = [array.dtype for array in empty]
        self._file_bytes = sum(array.nbytes + MEMBER_BYTES for array in empty) + 2 * MEMBER_BYTES
        if size < self._file_bytes:
            raise InputError(f"prefix_cache_size must be at least {self._file_bytes} bytes, a page, not {size}")
        way = _way(decoder, self._types, fingerprint)
        self._own = self.folder / way.hex()
        self._model = [*fingerprint, *np.frombuffer(way, "<i8").tolist()]
        self._known: set[bytes] = set()  # pages that need not be saved
        self._damaged: set[bytes] = set()
        self._writes = True

    def read(self, names: Iterable[bytes]) -> list[Page]:
        """The first of these pages, as far as they are there."""
        found: dict[bytes, Page] = {}
        for name in names:
            page = self._read(name)
            if page is None:
                break
            found[name] = page
        self._known.update(found)
        for name in reversed(found):  # the last page goes first: without those before it, it is of no use
            self._touch(self._path(name))
        return list(found.values())

    def unsaved(self, named: Iterable[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Those of the (name, page) pairs that are to be saved."""
        return [(name, page) for name, page in named if name not in self._known] if self._writes else []

    def save(self, pages: Sequence[tuple[bytes, Page]]) -> None:
        """Save pages that are not there, the last of a prompt first; deletes those that were not used for longest.

        What fails once is not tried again: there is a warning, and nothing more is saved.
        """
        self._known.update(name for name, _ in pages)
        new = []
        for name, page in pages:
            if name not in self._damaged and self._touch(self._path(name)):
                continue
            if all(np.isfinite(array).all() for array in page):  # else a device failed
                new.append((name, page))
        try:
            if new:
                self._own.mkdir(parents=True, exist_ok=True)
                self._make_room(len(new) * self._file_bytes)
            for name, page in new:
                write_state(self._path(name), self._model, list(name), page)
                self._touch(self._path(name))
                self._damaged.discard(name)
        except (OSError, HightideError) as error:
            self._writes = False
            reason = error.strerror if isinstance(error, OSError) else error
            warnings.warn(f"no more prefixes are saved to {self.folder}: {reason}", stacklevel=2)

    def keep_known(self, names: Iterable[bytes]) -> None:
        """Forget which others were saved."""
        self._known.intersection_update(names)

    def _path(self, name: bytes) -> Path:
        return self._own / f"{name.hex()}.npz"

    def _read(self, name: bytes) -> Page | None:
        path = self._path(name)
        try:
            # The name stands for the tokens: it is made of them.
            of, arrays = read_state(path, self._model, len(name), lambda _: self._layout)
            if bytes(of) == name and [array.dtype for array in arrays] == self._types:
                return arrays
        except (HightideError, ValueError):
            if not path.exists():
                return None
        self._damaged.add(name)
        return None

    def _touch(self, path: Path) -> bool:
        """Used just now; False if it is not there."""
        now = time.time_ns()
        try:
            os.utime(path, ns=(now, now))
        except OSError:
            return path.exists()  # of another user, perhaps
        return True

    def _make_room(self, nbytes: int) -> None:
        files = sorted(self._files(), key=lambda file: file[0])
        total = sum(size for _, size, _ in files) + nbytes
        for _, size, path in files:
            if total <= self.size:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= size

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """(time of use, bytes, path) of the pages of all models; what a killed process left half written goes."""
        for folder in _entries(self.folder, _FOLDER):
            for entry in _entries(folder, _PAGE):
                with suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    yield about.st_mtime_ns, about.st_size, entry.path
            for entry in _entries(folder, _PARTIAL):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
                        os.unlink(entry.path)


def _entries(folder: str | os.PathLike[str], names: re.Pattern[str]) -> list[os.DirEntry[str]]:
    """What is in a folder with a name like ours; nothing else in it is touched."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry for entry in entries if names.fullmatch(entry.name)]
    return []


def _way(decoder: RaggedDecoder, types: Sequence[np.dtype], fingerprint: Sequence[int]) -> bytes:
    """Stands for all that the keys and values of a token depend on: the model, its context, the device, its routes."""
    session = decoder.session
    constants = [v for v in session.graph.values if isinstance(v, TensorValue) and v.constant is not None]
    dims = [v.dims for v in constants if v.id not in session.planner.aliases.state]  # rotary tables: the context
    routes = sorted(session.planner.choices.chosen.items())
    how = (session.name, decoder.alike, routes, [str(dtype) for dtype in types])
    what = (hightide_version(), list(fingerprint), decoder.page, decoder.state_layout(decoder.page).dims, dims)
    return blake2b(repr((what, how)).encode(), digest_size=16).digest()
