"""The images and audio of prompts: as ids above the vocabulary for the host, as rows of an input on the device.

Each has ids of its own, one for each row that its encoder makes of it, and equal ones have equal ids. So a prompt stays
a list of integers, and finds its keys and values in the cache by it, whatever is in the prompt.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from hightide.errors import HightideError, InputError, UnsupportedError
from hightide.llm.media_marks import no_encoder
from hightide.media.audio import RATE
from hightide.media.images import CHANNELS, Pixels
from hightide.media.log_mel import HOP, log_mel
from hightide.media.parts import MediaPart
from hightide.pte.program import Method, Program
from hightide.runtime.session import Fed, Session

ENCODERS = {"image": ("vision_encoder", "image_encoder"), "audio": ("audio_encoder",)}
REMEMBERED = 32  # images and sounds whose ids are kept when no prompt has them any more
MAX_ID = 2**31 - 1


@dataclass(eq=False)
class Medium:
    """An image or audio, ready for its encoder."""

    kind: str
    array: np.ndarray  # what the encoder takes
    ids: range  # that stand for its rows
    rows: np.ndarray | None = None  # where the encoder had to run to say how many they are


class Media:
    """The encoders of a program, and what they were given."""

    def __init__(self, program: Program, vocabulary: int, width: int) -> None:
        """`vocabulary`: the first id that is no token. `width` is that of the embeddings."""
        self.name, self.vocabulary, self.width = program.file.path.name, vocabulary, width
        self.encoders = {kind: _Encoder(program, kind, name, width) for kind, name in encoder_names(program).items()}
        self.stride = max((encoder.most for encoder in self.encoders.values()), default=1)  # ids of one of them
        self._lock = threading.Lock()
        self._numbered: WeakValueDictionary[int, Medium] = WeakValueDictionary()
        self._known: OrderedDict[bytes, Medium] = OrderedDict()  # by content, the newest last
        self._count = 0

    def take(self, part: MediaPart) -> Medium:
        """An image or audio of a prompt; InputError if the model has no encoder for it, or it is none."""
        encoder = self.encoders.get(part.kind)
        if encoder is None:
            raise InputError(no_encoder(self.name, part.kind, self.encoders))
        array = encoder.prepare(part.load())
        name = blake2b(f"{part.kind}{array.shape}".encode() + array.tobytes(), digest_size=16).digest()
        with self._lock:
            medium = self._known.get(name)
            if medium is None:
                medium = self._add(part.kind, array, encoder)
            self._known[name] = medium
            self._known.move_to_end(name)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return medium

    def _add(self, kind: str, array: np.ndarray, encoder: _Encoder) -> Medium:
        first = self.vocabulary + self._count * self.stride
        if first + self.stride > MAX_ID:
            raise HightideError("there are no ids left for images and audio; open the model again")
        count, rows = encoder.measure(array)
        medium = Medium(kind, array, range(first, first + count), rows)
        self._numbered[self._count] = medium
        self._count += 1
        return medium

    def find(self, id: int) -> Medium | None:
        """What an id stands for a row of; None for a token, and for what was forgotten."""
        medium = self._numbered.get((id - self.vocabulary) // self.stride) if id >= self.vocabulary else None
        return medium if medium is not None and id in medium.ids else None

    def found(self, id: int) -> Medium:
        """What an id of a prompt under way stands for."""
        medium = self.find(id)
        if medium is None:
            raise HightideError("an image or audio of the prompt was forgotten; give it again")
        return medium

    def of(self, ids: Iterable[int]) -> list[Medium]:
        """All that a prompt has."""
        return list(dict.fromkeys(medium for each in ids if (medium := self.find(each)) is not None))

    def leading(self, ids: Sequence[int], most: int) -> int:
        """How many of these ids come before the row of one image or sound too many, if `most` may be among them."""
        seen: set[int] = set()
        for n, each in enumerate(ids):
            if each >= self.vocabulary:
                seen.add((each - self.vocabulary) // self.stride)
                if len(seen) > most:
                    return n
        return len(ids)

    def encode_into(self, medium: Medium, session: Session, position: int, row: int) -> None:
        """Put its rows into an input of a session."""
        encoder = self.encoders[medium.kind]
        if medium.rows is not None:
            session.fill_rows(position, row, medium.rows)
        else:
            encoder.run_into(medium.array, session, position, row)

    def encode(self, medium: Medium) -> np.ndarray:
        """Its rows [rows, width], on the host."""
        if medium.rows is None:
            medium.rows = self.encoders[medium.kind].run(medium.array)
        return medium.rows

    def recover(self) -> None:
        for encoder in self.encoders.values():
            encoder.method.reset()

    def device_bytes(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for encoder in self.encoders.values():
            total.update(encoder.method.device_bytes())
        return total

    def close(self) -> None:
        for encoder in self.encoders.values():
            encoder.method.close()


class MediaSlots:
    """Rows of images and audio in an input [slots * stride, width] of a session, each in a slot of its own."""

    def __init__(self, media: Media, session: Session) -> None:
        self.media, self._session = media, session
        self._position = len(session.specs) - 1
        self._dims = session.specs[-1].dims
        self.count = self._dims[0] // media.stride
        self._slots: OrderedDict[Medium, int] = OrderedDict()  # the one used last at the end

    @property
    def fed(self) -> Fed:
        """The input, as a run is given it."""
        return Fed(self._dims)

    def placed(self, tokens: Sequence[int]) -> list[int]:
        """The tokens of a step, with ids of rows as places in the input. What is not there yet is encoded."""
        placed = list(tokens)
        for n, token in enumerate(tokens):
            if token >= self.media.vocabulary:
                medium = self.media.found(token)
                slot = self._slot(medium)
                placed[n] = self.media.vocabulary + slot * self.media.stride + token - medium.ids.start
        return placed

    def _slot(self, medium: Medium) -> int:
        slot = self._slots.pop(medium, None)
        if slot is None:
            full = len(self._slots) == self.count
            slot = self._slots.popitem(last=False)[1] if full else len(self._slots)
            self.media.encode_into(medium, self._session, self._position, slot * self.media.stride)
        self._slots[medium] = slot
        return slot

    def clear(self) -> None:
        """After the device was lost: nothing is there any more."""
        self._slots.clear()


def encoder_names(program: Program) -> dict[str, str]:
    """The encoders of a program: "image" and "audio" with the names of their methods."""
    found = {}
    for kind, names in ENCODERS.items():
        for name in names:
            if name in program.methods and kind not in found:
                found[kind] = name
    return found


class _Encoder:
    """One of a program's encoders."""

    def __init__(self, program: Program, kind: str, name: str, width: int) -> None:
        info = program.methods[name]
        self._place = f"method {name} of {program.file.path.name}"
        if len(info.inputs) != 1 or not info.outputs or info.outputs[0].dims[-1:] != (width,):
            raise UnsupportedError(f"{self._place} must take one input and give rows of {width}; it is {name}{info!r}")
        self._spec, self._live_rows = info.inputs[0], info.outputs[0].dynamic
        self.most = math.prod(info.outputs[0].dims[:-1])  # rows
        self._pixels = self._read_pixels(program.metadata) if kind == "image" else None
        if kind == "audio" and (len(self._spec.dims) not in (2, 3) or self._spec.dtype[:5] != "float"):
            raise UnsupportedError(f"{self._place} must take a spectrogram [windows, mels, frames], not {info!r}")
        self.method: Method = program.method(name)

    def _read_pixels(self, metadata: Mapping[str, Any]) -> Pixels:
        dims, dtype = self._spec.dims, self._spec.dtype
        if len(dims) not in (3, 4) or dims[-3] != CHANNELS or dims[:-3] not in ((), (1,)):
            raise UnsupportedError(f"{self._place} must take an image [1, 3, H, W] or [3, H, W], not {list(dims)}")
        if dtype != "uint8" and not dtype.startswith("float"):
            raise UnsupportedError(f"{self._place} must take an image of uint8 or floats, not of {dtype}")
        normal = {}
        if metadata.get("do_normalize", True):
            normal = {key: _per_channel(metadata.get(f"image_{key}"), key) for key in ("mean", "std")}
        scale = float(metadata.get("rescale_factor", 1 / 255)) if metadata.get("do_rescale", True) else 1.0
        kept = {key: value for key, value in normal.items() if value is not None}
        return Pixels(dims[-2], dims[-1], len(dims) == 4, dtype, self._spec.dynamic, scale, **kept)

    def prepare(self, loaded: np.ndarray) -> np.ndarray:
        """What the encoder takes, of pixels or samples."""
        if self._pixels is not None:
            return self._pixels.of(loaded)
        *windows, mels, frames = self._spec.dims
        most = windows[0] if windows else 1
        length = frames * HOP
        count = max(1, -(-len(loaded) // length))
        if count > most:
            seconds = f"{len(loaded) / RATE:.1f} s"
            raise InputError(f"the audio is {seconds} long; {self._place} takes {most * length / RATE:g} s")
        count = count if self._spec.dynamic else most
        parts = [log_mel(loaded[n * length : (n + 1) * length], mels, frames) for n in range(count)]
        return np.array(parts).reshape(*([count] if windows else []), mels, frames).astype(self._spec.dtype)

    def measure(self, array: np.ndarray) -> tuple[int, np.ndarray | None]:
        """How many rows it makes, and those rows if that cannot be known before it runs."""
        if not self._live_rows:
            return self.most, None
        session = self.method.session
        if session is None:
            rows = self.run(array)
            return len(rows), rows
        output, plan = session.graph.outputs[0], session.level([array])[1]
        return math.prod(plan.dims.get(output, (self.most, 1))[:-1]), None

    def run_into(self, array: np.ndarray, to: Session, position: int, row: int) -> None:
        session = self.method.session
        if session is None:
            to.fill_rows(position, row, self.run(array))
        else:
            session.run_into([array], to, position, row)

    def run(self, array: np.ndarray) -> np.ndarray:
        rows = self.method(array)[0]
        return rows.reshape(-1, rows.shape[-1])


def _per_channel(given: Any, key: str) -> tuple[float, ...] | None:
    """The mean or deviation of each channel, as preprocessor_config.json has them."""
    if given is None:
        return None
    values = tuple(float(value) for value in (given if isinstance(given, list | tuple) else [given]))
    values = values * CHANNELS if len(values) == 1 else values
    if len(values) != CHANNELS or (key == "std" and not all(values)):
        raise UnsupportedError(f"the program's image_{key} is {list(values)}, not a number for each of three channels")
    return values
