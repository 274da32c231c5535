"""An elementwise op's expressions, by the type that they are computed in: "f32", "i32" or "bool"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Expressions: TypeAlias = Mapping[str, str]


def numbers(expression: str, ints: str = "") -> Expressions:
    """In f32 if an operand or the result is a float, else in i32."""
    return {"f32": expression, "i32": ints or expression}


def floats(expression: str) -> Expressions:
    """In f32, whatever the operands are."""
    return {"f32": expression}


def ints(expression: str) -> Expressions:
    """In i32; floats are refused."""
    return {"i32": expression}


def bools(expression: str) -> Expressions:
    """In bool, whatever the operands are."""
    return {"bool": expression}


def bits(ints: str, bools: str = "") -> Expressions:
    """In bool if that is the result, else in i32."""
    return {"i32": ints, "bool": bools or ints}


def anything(expression: str) -> Expressions:
    """In bool if that is the result, else as numbers."""
    return {**numbers(expression), **bools(expression)}
