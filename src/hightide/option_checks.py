"""Options of callers, checked before anything is done with them: of the right type, and within their range."""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Iterable
from typing import Any

from hightide.errors import InputError


def check_int(name: str, value: Any, least: int | None = None) -> None:
    """An integer, not a bool; of NumPy's too."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise InputError(f"{name} must be an integer, not {shown(value)}")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least}, not {value}")


def check_number(name: str, value: Any) -> None:
    """A finite number, not a bool."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"{name} must be a number, not {shown(value)}")


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {shown(value)}")


def checked_bytes(name: str, value: Any) -> int:
    """A number of bytes, or text such as "2 GiB"."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kKMGT]i?)?B?\s*", value)
        if found is None:
            raise InputError(f"{name} must be bytes, or text such as '2 GiB', not {shown(value)}")
        prefix = found[2] or ""
        scale = (1024 if prefix.endswith("i") else 1000) ** " KMGT".index(prefix[:1].upper() or " ")
        value = int(float(found[1]) * scale)
    check_int(name, value, 1)
    return int(value)


def check_path(name: str, value: Any) -> None:
    """A string or a Path that a file can have."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise InputError(f"{name} must be the path of a file, not {shown(value)}")


def check_callable(name: str, value: Any) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        raise InputError(f"{name} must be a function, not {shown(value)}")


def checked_list(name: str, value: Any, what: str) -> list[Any]:
    """The items of a list, tuple, set or array; a string is none."""
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be a list of {what}, not {shown(value)}")
    return list(value)


def shown(value: Any) -> str:
    """A value for a sentence: short, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
