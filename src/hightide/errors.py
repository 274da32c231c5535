"""The exceptions of hightide: one family, each message one sentence for the person who reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class HightideError(RuntimeError):
    """Base of every error that hightide raises on purpose; a RuntimeError, as `executorch.runtime` raises it."""


class ProgramError(HightideError):
    """A program file is damaged, hostile, or not what it claims to be."""


class UnsupportedError(HightideError):
    """A program is well formed but needs something hightide lacks (an op, a dtype, a backend)."""


class ExportError(HightideError):
    """A module could not be exported; `stage` says where: import, make, export, partition, lower or run."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class InputError(HightideError):
    """A call was given inputs the program cannot take; nothing was written and nothing ran."""


class DeviceError(HightideError):
    """No such adapter, a GPU validation error, out of memory, or a lost device."""


class DeviceLostError(DeviceError):
    """The device was lost, and with it what was on it. It is opened again; what was not brought back is said."""


class TooLargeError(DeviceError):
    """A program needs more memory than there is, or a tensor that is larger than the adapter binds."""


# What Python and NumPy raise when a file's numbers do not fit each other and no check of ours has said so before.
FOREIGN = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """The last line of defence while a file is read: what no check has foreseen becomes an error that names it."""
    try:
        yield
    except FOREIGN as error:
        raise ProgramError(f"{path} is damaged ({describe(error)})") from error
    except MemoryError as error:
        raise TooLargeError(f"{path} needs more memory than there is") from error


def describe(error: BaseException) -> str:
    """`IndexError: tuple index out of range`, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def error_text(error: Exception) -> str:
    """What went wrong, for a person; an OSError without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)
