"""What would fit where a model does not: a shorter context, KV caches of halves."""

from __future__ import annotations

from dataclasses import replace

from hightide.runtime.room import Needs, NoRoomError
from hightide.units import binary


def what_fits(error: NoRoomError, context: int, halves: bool) -> str:
    """`a context of 4096 needs 1.2 GiB`; `halves`: caches are of float32 and could be halves here."""
    found = []
    if not error.less_state_helps:
        return "neither a shorter context nor other caches would change that"
    if halves:
        half = _scaled(error.needs, 0.5)
        if _fits(half, error):
            found.append(f"kv='f16' needs {binary(half.total)}")
    shorter = _shorter(error, context)
    if shorter:
        found.append(f"a context of {shorter} needs {binary(_scaled(error.needs, shorter / context).total)}")
    if not found:
        return f"the model needs {binary(error.needs.weights)} for its weights alone, so a smaller one is needed"
    return " and ".join(found)


def _shorter(error: NoRoomError, context: int) -> int:
    """The longest context that fits, as a power of two; half of the one that does not if nothing is known."""
    length = 1 << (context - 1).bit_length() >> 1
    while length and not _fits(_scaled(error.needs, length / context), error):
        length >>= 1
    return length


def _fits(needs: Needs, error: NoRoomError) -> bool:
    fits_in_all = not error.room or needs.total <= error.room
    return fits_in_all and (not error.largest or needs.largest_state <= error.largest)


def _scaled(needs: Needs, by: float) -> Needs:
    """With caches of another size."""
    return replace(needs, state=int(needs.state * by), largest_state=int(needs.largest_state * by))
