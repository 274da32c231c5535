"""Live integers whose value is not part of the level: `const + coefficient * atom + ...`.

A position read from an input element changes at every decode step, yet most of what depends on it
does not: the rotary tables are sliced `[pos : pos + S]`, and `(pos + S) - pos` is S whatever pos is.
Keeping such integers symbolic while a plan is made lets one plan serve every position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from hightide.errors import InputError

MOST = 2**63  # what an exporter's integers hold; products of larger ones would grow without end
MOST_NODES = 1000  # of one expression, as a tree


class Element(NamedTuple):
    """The integer at flat index `flat` of graph input number `position` (resolved at the level's dims)."""

    position: int
    flat: int


@dataclass(frozen=True)
class Opaque:
    """A product or quotient that is not linear; kept whole."""

    kind: str  # "mul" | "floordiv"
    left: SymExpr
    right: SymExpr


Atom: TypeAlias = Element | Opaque
Env: TypeAlias = Mapping[Element, int]


@dataclass(frozen=True)
class Sym:
    """A linear form over atoms, with at least one term (a form without terms is a plain int)."""

    const: int
    terms: tuple[tuple[Atom, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.const, self.terms))

    @cached_property
    def nodes(self) -> int:
        """How large it is, products and quotients opened."""
        return sum(1 if isinstance(a, Element) else 1 + size_of(a.left) + size_of(a.right) for a, _ in self.terms)

    def __hash__(self) -> int:  # plans look grids up by Sym at every step
        return self._hash

    def __str__(self) -> str:
        parts = [f"{'' if c == 1 else f'{c}*'}{_name(a)}" for a, c in self.terms]
        if self.const:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")

    def __add__(self, other: SymExpr) -> SymExpr:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: SymExpr) -> SymExpr:
        return add(self, mul(other, -1))

    def __rsub__(self, other: int) -> SymExpr:
        return add(other, mul(self, -1))

    def __mul__(self, other: SymExpr) -> SymExpr:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: SymExpr) -> SymExpr:
        return floordiv(self, other)


SymExpr: TypeAlias = int | Sym


def element(position: int, flat: int) -> Sym:
    return Sym(0, ((Element(position, flat), 1),))


def add(left: SymExpr, right: SymExpr) -> SymExpr:
    if isinstance(left, int) and isinstance(right, int):
        return _bounded(left + right)
    terms: dict[Atom, int] = {}
    const = 0
    for side in (left, right):
        if isinstance(side, int):
            const += side
            continue
        const += side.const
        for atom, coefficient in side.terms:
            terms[atom] = terms.get(atom, 0) + coefficient
    kept = tuple((a, c) for a, c in terms.items() if c)
    return _form(const, kept) if kept else _bounded(const)


def mul(left: SymExpr, right: SymExpr) -> SymExpr:
    if isinstance(left, int) and isinstance(right, int):
        return _bounded(left * right)
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int):
        assert isinstance(left, Sym)
        if right == 0:
            return 0
        return _form(left.const * right, tuple((a, c * right) for a, c in left.terms))
    return _form(0, ((Opaque("mul", left, right), 1),))


def floordiv(left: SymExpr, right: SymExpr) -> SymExpr:
    if isinstance(left, int) and isinstance(right, int):
        return _floor(left, right)
    if right == 1:
        return left
    return _form(0, ((Opaque("floordiv", left, right), 1),))


def ceil_div(value: SymExpr, step: int) -> SymExpr:
    return floordiv(value + (step - 1), step)


def evaluate(expr: SymExpr, env: Env) -> int:
    """The value of `expr` for this run."""
    if isinstance(expr, int):
        return expr
    total = expr.const
    for atom, coefficient in expr.terms:
        if isinstance(atom, Element):
            value = env[atom]
        else:
            left, right = evaluate(atom.left, env), evaluate(atom.right, env)
            value = left * right if atom.kind == "mul" else _floor(left, right)
        total += coefficient * value
    return total


def elements(expr: SymExpr) -> set[Element]:
    """The input elements that `expr` reads."""
    if isinstance(expr, int):
        return set()
    found: set[Element] = set()
    for atom, _ in expr.terms:
        found |= {atom} if isinstance(atom, Element) else elements(atom.left) | elements(atom.right)
    return found


def size_of(expr: SymExpr) -> int:
    return 0 if isinstance(expr, int) else expr.nodes


def _form(const: int, terms: tuple[tuple[Atom, int], ...]) -> Sym:
    form = Sym(_bounded(const), terms)
    for _, coefficient in terms:
        _bounded(coefficient)
    if form.nodes > MOST_NODES:
        raise InputError(f"a SymInt of this program is computed in more than {MOST_NODES} steps")
    return form


def _bounded(value: int) -> int:
    if not -MOST <= value <= MOST:
        raise InputError("a SymInt of this program does not fit 64 bits")
    return value


def _floor(left: int, right: int) -> int:
    if right == 0:
        raise InputError(f"a SymInt of this program divides {left} by 0")
    return left // right


def _name(atom: Atom) -> str:
    if isinstance(atom, Element):
        return f"in{atom.position}[{atom.flat}]"
    left, right = (
        f"({side})" if isinstance(side, Sym) and " " in str(side) else str(side) for side in (atom.left, atom.right)
    )
    return f"({left} {'*' if atom.kind == 'mul' else '//'} {right})"
