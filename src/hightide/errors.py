"""The exceptions of hightide: one family, each message one sentence for the person who reads it."""

from __future__ import annotations


class HightideError(RuntimeError):
    """Base of every error that hightide raises on purpose; a RuntimeError, as `executorch.runtime` raises it."""


class ProgramError(HightideError):
    """A program file is damaged, hostile, or not what it claims to be."""


class UnsupportedError(HightideError):
    """A program is well formed but needs something hightide lacks (an op, a dtype, a backend)."""


class InputError(HightideError):
    """A call was given inputs the program cannot take; nothing was written and nothing ran."""


class DeviceError(HightideError):
    """No such adapter, a GPU validation error, out of memory, or a lost device."""


class DeviceLostError(DeviceError):
    """The device was lost, and with it what was on it. It is opened again; what was not brought back is said."""


class DeviceMemoryError(DeviceError):
    """The device has no memory left for a buffer."""
