"""Instructions of a method. Numbers that are not said to be others are indices of the method's values."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class KernelCall(NamedTuple):
    op: str  # "aten::add.out"
    args: tuple[int, ...]


class DelegateCall(NamedTuple):
    delegate: int  # index into the method's delegates
    args: tuple[int, ...]


class MoveCall(NamedTuple):
    source: int
    target: int


class JumpFalseCall(NamedTuple):
    condition: int
    destination: int  # index of an instruction, or their count: the end


class FreeCall(NamedTuple):
    value: int


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall
