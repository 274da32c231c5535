"""What is new in an answer: text, thoughts, or calls of tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Reasoning:
    text: str


@dataclass(frozen=True)
class CallBegun:
    """A call of this tool; its arguments follow."""

    index: int  # among the calls of the answer
    name: str


@dataclass(frozen=True)
class CallArguments:
    """A piece of a call's arguments, which together are JSON."""

    index: int
    text: str


Delta: TypeAlias = Text | Reasoning | CallBegun | CallArguments
