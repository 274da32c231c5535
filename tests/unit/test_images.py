"""From files, arrays and what clients send to pixels for an encoder, without a model."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spoken import as_int16, clip, wav

from hightide import Audio, Image, InputError
from hightide.media.images import Pixels, load_image, resized
from hightide.media.parts import read_part

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)


def test_arrays_of_any_kind_become_bytes_of_three_channels() -> None:
    np.testing.assert_array_equal(load_image(BYTES), BYTES)
    np.testing.assert_array_equal(load_image(BYTES.astype(np.float32) / 255), BYTES)
    grey = BYTES[..., 0]
    for form in (grey, grey[..., None]):
        np.testing.assert_array_equal(load_image(form), np.stack([grey] * 3, axis=2))


def test_what_is_transparent_is_white() -> None:
    image = np.dstack([BYTES, np.full((5, 7), 255, np.uint8)])
    image[0, 0, 3] = 0
    image[1, 1] = (100, 0, 200, 51)  # a fifth
    seen = load_image(image)
    assert seen[0, 0].tolist() == [255, 255, 255] and seen[1, 1].tolist() == [224, 204, 244]
    np.testing.assert_array_equal(seen[2:], BYTES[2:])


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((3, 4), np.int32), "of uint8 or floats, not of int32"),
        (np.zeros((2, 3, 4, 3), np.uint8), r"not uint8 \[2, 3, 4, 3\]"),
        (np.zeros((0, 4, 3), np.uint8), r"not uint8 \[0, 4, 3\]"),
        (np.zeros((3, 8, 8), np.uint8), r"an array \[height, width, 3\] or a Pillow image, not uint8 \[3, 8, 8\]"),
        (np.full((2, 2, 3), 1.5), "numbers outside 0 to 1"),
        (np.full((2, 2, 3), np.nan), "numbers outside 0 to 1"),
        (5, "not 5"),
        ("no such file.png", "cannot read the image"),
    ],
)
def test_other_things_are_refused(image: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_image(image)


@pytest.mark.parametrize(("height", "width"), [(3, 3), (5, 7), (11, 4), (2, 20), (1, 1)])
def test_resized_images_are_weighted_means(height: int, width: int) -> None:
    """Each new pixel is a mean of those within reach, so a flat image stays flat, and a ramp a ramp inside."""
    flat = np.full((8, 12, 3), 77, np.uint8)
    assert (resized(flat, height, width) == 77).all()
    ramp = np.broadcast_to((np.arange(40) * 6).astype(np.uint8)[None, :, None], (8, 40, 3))
    got = resized(ramp, height, 10)[0, 1:-1, 0].astype(int)
    np.testing.assert_array_equal(got, [(4 * n + 1.5) * 6 for n in range(1, 9)])


def test_pixels_are_scaled_and_normalised() -> None:
    taken = Pixels(5, 7, True, "float32", mean=(0.5, 0.25, 0.0), std=(0.5, 1.0, 2.0))
    seen = taken.of(BYTES)
    assert seen.shape == (1, 3, 5, 7) and seen.dtype == np.float32
    want = (BYTES / 255 - np.array([0.5, 0.25, 0.0])) / np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(seen[0].transpose(1, 2, 0), want, atol=1e-6)


def test_live_dims_keep_the_ratio_of_the_sides() -> None:
    taken = Pixels(28, 20, False, "uint8", live=True)
    for sides, want in [((40, 20), (28, 14)), ((10, 30), (6, 20)), ((28, 20), (28, 20)), ((500, 1), (28, 1))]:
        seen = taken.of(np.zeros((*sides, 3), np.uint8))
        assert seen.shape == (3, *want) and seen.dtype == np.uint8


def test_files_need_pillow_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r"pip install 'hightide\[images\]'"):
        load_image(b"\x89PNG\r\n\x1a\n")


def test_files_and_pillow_images(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    made = pillow.fromarray(BYTES)
    path, data = tmp_path / "image.png", io.BytesIO()
    made.save(path)
    made.save(data, "PNG")
    for form in (made, path, str(path), data.getvalue(), Image(path).data):
        np.testing.assert_array_equal(load_image(form), BYTES)
    with pytest.raises(InputError, match="not an image"):
        load_image(b"GIF but no")
    with pytest.raises(InputError, match="damaged"):
        load_image(data.getvalue()[:60])


@pytest.mark.parametrize(("height", "width"), [(20, 31), (64, 48), (7, 9), (100, 8)])
def test_images_are_resized_as_pillow_does(height: int, width: int) -> None:
    pillow = pytest.importorskip("PIL.Image")
    image = RNG.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    want = np.asarray(pillow.fromarray(image).resize((width, height), pillow.Resampling.BILINEAR)).astype(int)
    assert np.abs(resized(image, height, width) - want).max() <= 1  # it rounds between the two directions


# ---- parts of messages


def url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def test_parts_as_callers_and_clients_give_them() -> None:
    sound = wav(as_int16(clip(2)))
    heard = base64.b64encode(sound).decode()
    forms: list[tuple[Any, type, Any]] = [
        ("Hi", str, "Hi"),
        ({"type": "text", "text": "Hi"}, str, "Hi"),
        ({"text": "Hi"}, str, "Hi"),
        (BYTES, Image, BYTES),
        (Path("cat.png"), Image, Path("cat.png")),
        (Path("cat.WAV"), Audio, Path("cat.WAV")),
        (b"\x89PNG", Image, b"\x89PNG"),
        (sound, Audio, sound),
        ({"type": "image", "image": BYTES}, Image, BYTES),
        ({"type": "audio", "audio": sound}, Audio, sound),
        ({"type": "image_url", "image_url": {"url": url(b"abc"), "detail": "auto"}}, Image, b"abc"),
        ({"type": "image_url", "image_url": url(b"abc")}, Image, b"abc"),
        ({"type": "input_audio", "input_audio": {"data": heard, "format": "wav"}}, Audio, sound),
    ]
    for given, kind, data in forms:
        part = read_part(given, "it")
        assert isinstance(part, kind)
        np.testing.assert_array_equal(part if isinstance(part, str) else part.data, data)
    assert Audio(sound).load().dtype == np.float32


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (5, "must be text, an image or audio, not 5"),
        (np.zeros(100), "hightide.Image or hightide.Audio says what it is"),
        ({"type": "video"}, "is of type 'video'"),
        ({"type": "text"}, "has no text"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}, "nothing is fetched"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "nothing is fetched"),
        ({"type": "image_url"}, "nothing is fetched"),
        ({"type": "image_url", "image_url": "data:image/png,abc"}, "not in base64"),
        ({"type": "image_url", "image_url": "data:image/png;base64,a?c"}, "not base64"),
        ({"type": "input_audio", "input_audio": "abc"}, "no input_audio with data"),
    ],
)
def test_wrong_parts_are_refused_with_their_place(part: Any, said: str) -> None:
    with pytest.raises(InputError, match=rf"^part 2 of message 1 .*{said}"):
        read_part(part, "part 2 of message 1")
