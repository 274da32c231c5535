"""Instructions of a method. Numbers that are not said to be others are indices of the method's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class KernelCall:
    op: str  # "aten::add.out"
    args: tuple[int, ...]


@dataclass(frozen=True)
class DelegateCall:
    delegate: int  # index into the method's delegates
    args: tuple[int, ...]


@dataclass(frozen=True)
class MoveCall:
    source: int
    target: int


@dataclass(frozen=True)
class JumpFalseCall:
    condition: int
    destination: int  # index of an instruction, or their count: the end


@dataclass(frozen=True)
class FreeCall:
    value: int


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall
