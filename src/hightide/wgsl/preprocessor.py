"""The preprocessor of WGSL files: constants, conditions, loops written out, includes, declarations.

    #params rows: u32, eps: f32        fields of the uniform `params`, in order
    #read x: vec4<f32>, y: f32         bindings
    #read bias: f32 if BIAS            a condition leaves out, in some variants, what its line declares
    #write out: $T
    #include "linear/epilogue.wgsl"    another file, from the same root
    #const T = "vec4<f32>" if VEC4 else "f32"
    #if ROWS > 1 … #elif … #else … #end
    #for r in ROWS … #end              the lines once for r = 0, 1, …, ROWS - 1
    #main 64                           the head of `main` up to its brace, for 64 threads per workgroup: `lane` is the
                                       thread's number, `group_number(group, groups)` the workgroup's

`$NAME` and `${NAME}` stand for a constant or a loop's number, `${NAME * 2}` for an expression. Constants come from the
caller and from `#const`. Expressions are Python's, with arithmetic, comparisons, `and`, `or`, `not`, `a if b else c`. A
comment behind a directive stands two spaces or more from it: `#const N = ROWS // 2` is a division.

Loops are written out because drivers keep loops over registers as loops, and the registers then live in memory: on
llvmpipe a matrix product with its tile written out is 1.7 to 2.7 times as fast.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

Constant: TypeAlias = int | float | bool | str
Constants: TypeAlias = Mapping[str, Constant]

_DIRECTIVE = re.compile(
    r"\s*#(params|read|write|include|const|main|if|elif|else|for|end)\b\s*(.*?)\s*(?:(?<=  )//.*)?$"
)
_STRAY = re.compile(r"\s*#")
_FOR = re.compile(r"([A-Za-z_]\w*) in (.+)")
_CONST = re.compile(r"([A-Za-z_]\w*)\s*=\s*(.+)")
_NAMED = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([^}]*)\})")
_DECLARED = re.compile(r"\s*([A-Za-z_]\w*)\s*:\s*(.+)")
_MAIN = """@compute @workgroup_size({threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {{"""


class WgslError(Exception):
    """A WGSL file that the preprocessor, or the caller of its kernel, gets wrong; says the file and line."""


class Line(NamedTuple):
    """A line of text, and where it stands."""

    text: str
    file: str
    number: int

    def error(self, message: str) -> WgslError:
        return WgslError(f"{self.file}:{self.number}: {message}")


@dataclass(frozen=True)
class Declared:
    """A parameter, or a binding, as a file declares it."""

    name: str
    type: str
    line: Line


@dataclass
class Expanded:
    """A file for one set of constants: its lines in order, and what it declares, includes too."""

    lines: list[Line] = field(default_factory=list)
    params: list[Declared] = field(default_factory=list)
    reads: list[Declared] = field(default_factory=list)
    writes: list[Declared] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)  # declared, but not in this variant


def expand(root: str, file: str, constants: Constants) -> Expanded:
    """The file below the package `root`, for these constants."""
    expanded = Expanded()
    _Expansion(root, expanded).lines(iter(_read(root, file)), dict(constants))
    return expanded


@cache
def _read(root: str, file: str) -> tuple[Line, ...]:
    text = resources.files(root).joinpath(file).read_text("utf-8")
    return tuple(Line(line, file, number) for number, line in enumerate(text.splitlines(), 1))


class _Expansion:
    """One run of the preprocessor."""

    def __init__(self, root: str, result: Expanded) -> None:
        self.root, self.result = root, result

    def lines(self, lines: Iterator[Line], names: dict[str, Constant]) -> None:
        for line in lines:
            found = _DIRECTIVE.match(line.text)
            if found is None:
                if _STRAY.match(line.text):
                    raise line.error(f"{line.text.split()[0]} is not a directive")
                text = _filled(line, line.text, names) if "$" in line.text else line.text
                self.result.lines.append(Line(text, line.file, line.number))
                continue
            word, rest = found[1], found[2]
            if word == "if":
                self._choose(line, rest, lines, names)
            elif word == "for":
                self._repeat(line, rest, lines, names)
            elif word == "include":
                self._include(line, rest, names)
            elif word == "const":
                parts = _CONST.fullmatch(rest) or _refuse(line, "#const NAME = EXPRESSION")
                names[parts[1]] = _value(line, parts[2], names)
            elif word == "main":
                if not rest:
                    raise line.error("write it as #main THREADS")
                head = _MAIN.format(threads=_filled(line, rest, names))
                self.result.lines += [Line(text, line.file, line.number) for text in head.splitlines()]
            elif word in ("params", "read", "write"):
                self._declare(line, word, _filled(line, rest, names), names)
            else:
                raise line.error(f"#{word} has no #if or #for before it")

    def _choose(self, line: Line, condition: str, lines: Iterator[Line], names: dict[str, Constant]) -> None:
        branches = [(line, condition, [])] if condition else _refuse(line, "#if CONDITION")
        body: list[Line] = branches[0][2]
        for inner, word, rest in _until_end(line, lines):
            if word in ("elif", "else"):
                body = []
                branches.append((inner, rest if word == "elif" else "True", body))
            else:
                body.append(inner)
        for at, test, taken in branches:
            if _value(at, test, names):
                self.lines(iter(taken), names)
                return
            self.result.absent.update(_declared_names(taken))

    def _repeat(self, line: Line, rest: str, lines: Iterator[Line], names: dict[str, Constant]) -> None:
        parts = _FOR.fullmatch(rest) or _refuse(line, "#for NAME in EXPRESSION")
        body = [inner for inner, _, _ in _until_end(line, lines)]
        count = _value(line, parts[2], names)
        if not isinstance(count, int):
            raise line.error(f"{parts[2]} is {count!r}, not a number of turns")
        for number in range(count):
            self.lines(iter(body), {**names, parts[1]: number})

    def _include(self, line: Line, rest: str, names: dict[str, Constant]) -> None:
        file = _filled(line, rest, names)
        if len(file) < 3 or file[0] != '"' or file[-1] != '"':
            raise line.error('an include is #include "folder/file.wgsl"')
        try:
            included = _read(self.root, file[1:-1])
        except FileNotFoundError:
            raise line.error(f"there is no file {file}") from None
        self.lines(iter(included), names)

    def _declare(self, line: Line, word: str, rest: str, names: dict[str, Constant]) -> None:
        kind = {"params": self.result.params, "read": self.result.reads, "write": self.result.writes}[word]
        rest, _, condition = rest.partition(" if ")
        there = not condition or bool(_value(line, condition, names))
        for item in _split(rest):
            parts = _DECLARED.fullmatch(item) or _refuse(line, f"#{word} NAME: TYPE, …")
            known = (*self.result.params, *self.result.reads, *self.result.writes)
            if there and any(parts[1] == other.name for other in known):
                raise line.error(f"{parts[1]} is declared twice")
            if there:
                kind.append(Declared(parts[1], parts[2].strip(), line))
            else:
                self.result.absent.add(parts[1])


def _until_end(start: Line, lines: Iterator[Line]) -> Iterator[tuple[Line, str, str]]:
    """The lines of a block up to its #end, each with its directive ("" inside inner blocks) and the rest of it."""
    depth = 0
    for line in lines:
        found = _DIRECTIVE.match(line.text)
        word, rest = (found[1], found[2]) if found else ("", "")
        if word == "end" and not depth:
            return
        yield line, "" if depth else word, rest
        depth += (word in ("if", "for")) - (word == "end")
    raise start.error(f"{start.text.strip()} has no #end")


def _declared_names(lines: list[Line]) -> Iterator[str]:
    for line in lines:
        found = _DIRECTIVE.match(line.text)
        if found and found[1] in ("params", "read", "write"):
            yield from (item.partition(":")[0].strip() for item in _split(found[2].partition(" if ")[0]))


def _split(items: str) -> list[str]:
    """By commas, but not those inside `array<vec4<u32>, 2>`."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(items):
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            parts.append(items[start:at])
            start = at + 1
    return [*parts, items[start:]]


def _filled(line: Line, text: str, names: Constants) -> str:
    def value(found: re.Match[str]) -> str:
        result = names.get(found[1]) if found[1] else _value(line, found[2], names)
        if result is None:
            raise line.error(f"${found[1]} has no value; there are {', '.join(sorted(names)) or 'none'}")
        return str(result).lower() if isinstance(result, bool) else str(result)

    return _NAMED.sub(value, text)


def _refuse(line: Line, form: str) -> Any:
    raise line.error(f"write it as {form}")


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}


def _value(line: Line, expression: str, names: Constants) -> Constant:
    try:
        return _evaluate(_parse(expression), names)
    except KeyError as error:
        raise line.error(f"{error.args[0]} has no value; there are {', '.join(sorted(names)) or 'none'}") from None
    except (SyntaxError, TypeError, ValueError, ZeroDivisionError) as error:
        raise line.error(f"{expression!r} cannot be evaluated: {error}") from None


@cache
def _parse(expression: str) -> ast.expr:
    return ast.parse(expression.strip(), mode="eval").body


def _operator(op: ast.AST) -> Callable[..., Any]:
    if type(op) not in _OPERATORS:
        raise ValueError(f"{type(op).__name__} is not part of the language")
    return _OPERATORS[type(op)]


def _evaluate(node: ast.expr, names: Constants) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.Tuple(elts=items):
            return tuple(_evaluate(item, names) for item in items)
        case ast.UnaryOp(op=op, operand=operand):
            return _operator(op)(_evaluate(operand, names))
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return _operator(op)(_evaluate(left, names), _evaluate(right, names))
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_evaluate(value, names) for value in values)
        case ast.BoolOp(values=values):
            return any(_evaluate(value, names) for value in values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if _evaluate(test, names) else orelse, names)
    raise ValueError(f"{type(node).__name__} is not part of the language")
