"""Formulas of live dims: polynomials over what varies, with divisions that round down kept whole.

`Live` is an int that remembers how it was computed. Dims that go through the ops' own `outputs` as `Live`
numbers come out with their formulas: `2*S + T`, `S*T`, `ceil(S/2)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Quotient:
    """floor(top / bottom), where that is no polynomial."""

    top: Formula
    bottom: Formula

    def __str__(self) -> str:
        bottom = self.bottom.constant
        if bottom is not None and self.top.terms.get((), 0) == bottom - 1:
            return f"ceil({_wrapped(self.top - Formula.of(bottom - 1))}/{bottom})"
        return f"{_wrapped(self.top)}//{_wrapped(self.bottom)}"


@dataclass(frozen=True)
class Extreme:
    """The larger or the smaller of two: where a program clamps."""

    kind: str  # "max" | "min"
    left: Formula
    right: Formula

    def __str__(self) -> str:
        return f"{self.kind}({self.left}, {self.right})"


Atom: TypeAlias = "str | Quotient | Extreme"
Monomial: TypeAlias = tuple[Atom, ...]  # in the order of their names; () is 1


class Formula:
    """A sum of products of names and quotients, with integer coefficients. Equal formulas are written alike."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {monomial: c for monomial, c in terms.items() if c}

    @staticmethod
    def of(value: int | str) -> Formula:
        """A number, or a name."""
        return Formula({(): int(value)} if isinstance(value, int) else {(value,): 1})

    @property
    def constant(self) -> int | None:
        """The number that it is, if it is one."""
        return self.terms.get((), 0) if not set(self.terms) - {()} else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __add__(self, other: Formula) -> Formula:
        terms = dict(self.terms)
        for monomial, c in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + c
        return Formula(terms)

    def __neg__(self) -> Formula:
        return Formula({monomial: -c for monomial, c in self.terms.items()})

    def __sub__(self, other: Formula) -> Formula:
        return self + -other

    def __mul__(self, other: Formula) -> Formula:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                product = tuple(sorted((*left, *right), key=str))
                terms[product] = terms.get(product, 0) + a * b
        return Formula(terms)

    def __floordiv__(self, other: Formula) -> Formula:
        """Divided exactly where that is so for every value, else as a quotient that rounds down."""
        if (exact := self._divided(other)) is not None:
            return exact
        bottom = other.constant
        if not bottom or bottom < 0:  # by something live, or by 0, which a run refuses
            return Formula({(Quotient(self, other),): 1})
        whole = Formula({m: c // bottom for m, c in self.terms.items() if c % bottom == 0})
        rest = Formula({m: c for m, c in self.terms.items() if c % bottom})
        if (number := rest.constant) is not None:
            return whole + Formula.of(number // bottom)
        if max(c for m, c in rest.terms.items() if m) < 0:  # floor(-x / n) is -ceil(x / n)
            return whole - (-rest + Formula.of(bottom - 1)) // other
        if (nested := _nested(rest, bottom)) is not None:
            return whole + nested
        carried, left = divmod(rest.terms.get((), 0), bottom)
        rest = Formula({**rest.terms, (): left})
        return whole + Formula.of(carried) + Formula({(Quotient(rest, other),): 1})

    def _divided(self, other: Formula) -> Formula | None:
        if len(other.terms) != 1:
            return Formula.of(1) if self == other and self.terms else None
        ((by, divisor),) = other.terms.items()
        terms: dict[Monomial, int] = {}
        for monomial, c in self.terms.items():
            left = list(monomial)
            for atom in by:
                if atom not in left:
                    return None
                left.remove(atom)
            if c % divisor:
                return None
            terms[tuple(left)] = c // divisor
        return Formula(terms)

    def value(self, level: Mapping[str, int]) -> int:
        """What it is at a level; ZeroDivisionError where it divides by 0."""
        total = 0
        for monomial, c in self.terms.items():
            for atom in monomial:
                c *= _atom_value(atom, level)
            total += c
        return total

    def __str__(self) -> str:
        text = ""
        for monomial, c in sorted(self.terms.items(), key=_written_at):
            factors = [str(atom) if len(monomial) == 1 and c == 1 else _factor(atom) for atom in monomial]
            if abs(c) != 1 or not monomial:
                factors.insert(0, str(abs(c)))
            sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
            text += sign + "*".join(factors)
        return text or "0"

    __repr__ = __str__

    def data(self) -> list[Any]:
        """As lists for JSON: of [coefficient, [atom, ...]], an atom being a name or [kind, formula, formula]."""
        return [[c, [_atom_data(atom) for atom in monomial]] for monomial, c in self.terms.items()]


def _nested(top: Formula, bottom: int) -> Formula | None:
    """floor((floor(x / a) + b) / c) as floor((x + a * b) / (a * c))."""
    inner = [(m[0], c) for m, c in top.terms.items() if m]
    if len(inner) != 1 or inner[0][1] != 1 or not isinstance(quotient := inner[0][0], Quotient):
        return None
    step = quotient.bottom.constant
    if step is None or step < 1:
        return None
    ahead = Formula.of(top.terms.get((), 0) * step)
    return (quotient.top + ahead) // Formula.of(step * bottom)


def _atom_value(atom: Atom, level: Mapping[str, int]) -> int:
    if isinstance(atom, str):
        return level[atom]
    if isinstance(atom, Quotient):
        return atom.top.value(level) // atom.bottom.value(level)
    return (max if atom.kind == "max" else min)(atom.left.value(level), atom.right.value(level))


def _atom_data(atom: Atom) -> Any:
    if isinstance(atom, str):
        return atom
    if isinstance(atom, Quotient):
        return ["floor", atom.top.data(), atom.bottom.data()]
    return [atom.kind, atom.left.data(), atom.right.data()]


def _written_at(term: tuple[Monomial, int]) -> tuple[Any, ...]:
    """The order in a sum: what is added before what is taken away, `pos` before `S`, a number last."""
    monomial, c = term
    return not monomial, c < 0, -len(monomial), [str(atom).swapcase() for atom in monomial]


def _wrapped(formula: Formula) -> str:
    text = str(formula)
    return f"({text})" if " " in text or "*" in text or "//" in text else text


def _factor(atom: Atom) -> str:
    text = str(atom)
    return f"({text})" if "//" in text else text


class Live(int):
    """An int that knows its formula; what is computed from it does too."""

    formula: Formula

    def __new__(cls, value: int, formula: Formula) -> Live:
        made = super().__new__(cls, value)
        made.formula = formula
        return made

    def __add__(self, other: Any) -> Any:
        return _combined(int(self) + other, self, other, Formula.__add__) if isinstance(other, int) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return _combined(other + int(self), other, self, Formula.__add__) if isinstance(other, int) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return _combined(int(self) - other, self, other, Formula.__sub__) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return _combined(other - int(self), other, self, Formula.__sub__) if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return _combined(int(self) * other, self, other, Formula.__mul__) if isinstance(other, int) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return _combined(other * int(self), other, self, Formula.__mul__) if isinstance(other, int) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return _combined(int(self) // other, self, other, Formula.__floordiv__)

    def __rfloordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return _combined(other // int(self), other, self, Formula.__floordiv__)

    def __neg__(self) -> Any:
        return Live(-int(self), -self.formula)


def _combined(value: Any, left: Any, right: Any, how: Any) -> Any:
    return Live(int(value), how(formula_of(left), formula_of(right)))


def formula_of(number: int) -> Formula:
    """A number's formula: its own, or just the number."""
    return number.formula if isinstance(number, Live) else Formula.of(int(number))
