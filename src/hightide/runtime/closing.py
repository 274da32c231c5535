"""What is closed at the end of a `with` block."""

from __future__ import annotations

from typing import TypeVar

Entered = TypeVar("Entered")


class Closing:
    """Leaving a `with` block closes it."""

    def __enter__(self: Entered) -> Entered:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError
