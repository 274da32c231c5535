"""Images as a model sees them: read, resized, scaled and normalised. Pillow reads files; the rest is NumPy."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import InputError, error_text
from hightide.option_checks import shown

CHANNELS = 3  # red, green, blue
MOST_PIXELS = 100_000_000  # a larger image is a mistake, or is meant to fill the memory
FORMS = "an image must be a file, its bytes, an array [height, width, 3] or a Pillow image"


def load_image(image: Any, name: str = "the image") -> np.ndarray:
    """uint8 [height, width, 3] of a file by path or as bytes, an array or a Pillow image.

    Arrays are uint8 from 0 to 255, or floats from 0 to 1; [height, width] and a last dim of 1 are grey, of 4 has
    transparency, which is put on white.
    """
    if isinstance(image, str | os.PathLike):
        try:
            image, name = Path(image).read_bytes(), str(image)
        except (OSError, ValueError) as error:
            reason = error_text(error) if isinstance(error, OSError) else str(error)
            raise InputError(f"cannot read the image {shown(os.fspath(image))}: {reason}") from None
    if isinstance(image, bytes | bytearray | memoryview):
        image = _decoded(bytes(image), name)
    if hasattr(image, "convert") and hasattr(image, "mode"):  # Pillow's
        image = np.asarray(image.convert("RGBA" if "A" in image.mode or "transparency" in image.info else "RGB"))
    return _opaque(_as_bytes(image, name))


@dataclass(frozen=True)
class Pixels:
    """What an encoder takes: the most rows and columns, the type, and how bytes become it."""

    height: int
    width: int
    batch: bool  # [1, 3, H, W], else [3, H, W]
    dtype: str  # "uint8": bytes as they are
    live: bool = False  # any height and width up to these
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def of(self, image: np.ndarray) -> np.ndarray:
        """An image uint8 [height, width, 3], resized: to these dims, or to fit into them where they are live."""
        height, width = self.height, self.width
        if self.live:
            ratio = min(height / image.shape[0], width / image.shape[1])
            height, width = (max(1, int(size * ratio + 1e-6)) for size in image.shape[:2])
        seen = resized(image, height, width)
        if self.dtype != "uint8":
            scaled = seen.astype(np.float64) * self.scale
            seen = ((scaled - np.array(self.mean)) / np.array(self.std)).astype(self.dtype)
        seen = np.ascontiguousarray(seen.transpose(2, 0, 1))
        return seen[None] if self.batch else seen


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """uint8 [height, width, channels]: a triangle as wide as the pixels of the smaller image, as Pillow's BILINEAR."""
    rows, columns = _weights(image.shape[0], height), _weights(image.shape[1], width)
    if image.shape[:2] == (height, width):
        return image
    across = np.einsum("xw,hwc->hxc", columns, image.astype(np.float64))
    return np.einsum("yh,hxc->yxc", rows, across).round().clip(0, 255).astype(np.uint8)


def _weights(source: int, target: int) -> np.ndarray:
    """[target, source]: what each pixel adds to each new one. When an image gets smaller, all of its pixels count."""
    step = source / target
    reach = max(step, 1.0)
    centres = (np.arange(target) + 0.5) * step - 0.5
    weights = np.maximum(0.0, 1 - np.abs(np.arange(source) - centres[:, None]) / reach)
    return weights / weights.sum(axis=1, keepdims=True)


def _decoded(data: bytes, name: str) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError(
            f"{name} is a file, which Pillow reads: pip install 'hightide[images]'; arrays need nothing"
        ) from None
    try:
        opened = Image.open(io.BytesIO(data))
        if opened.width * opened.height > MOST_PIXELS:
            raise InputError(f"{name} has {opened.width} x {opened.height} pixels; {MOST_PIXELS} are the most")
        opened.load()
    except UnidentifiedImageError:
        raise InputError(f"{name} is not an image that Pillow can read") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{name} is damaged: {error}") from None
    return opened


def _as_bytes(image: Any, name: str) -> np.ndarray:
    """uint8 [height, width, channels] of an array."""
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or not array.size:
        what = f"{array.dtype} {list(array.shape)}" if array.ndim else shown(image)
        raise InputError(f"{FORMS}, not {what}")
    if array.shape[0] * array.shape[1] > MOST_PIXELS:
        raise InputError(f"{name} has {array.shape[1]} x {array.shape[0]} pixels; {MOST_PIXELS} are the most")
    if array.dtype.kind == "f":
        if not ((array >= 0) & (array <= 1)).all():
            raise InputError(f"{name} has numbers outside 0 to 1, which floats of an image are in; bytes are 0 to 255")
        return (array * 255).round().astype(np.uint8)
    if array.dtype != np.uint8:
        raise InputError(f"{FORMS} of uint8 or floats, not of {array.dtype}")
    return array


def _opaque(image: np.ndarray) -> np.ndarray:
    """[height, width, 3]: grey becomes three equal channels, what is transparent becomes white."""
    if image.shape[2] == 1:
        return image.repeat(CHANNELS, axis=2)
    if image.shape[2] == 3:
        return image
    part = image[..., 3:].astype(np.float64) / 255
    return (image[..., :3] * part + 255 * (1 - part)).round().astype(np.uint8)
