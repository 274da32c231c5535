"""Tensors held as halves: a kernel's source, rewritten for the bindings whose elements are f16 in memory.

Kernels are written for f32. For a binding that is held as halves the declaration changes (`array<f32>` becomes
`array<f16>`), what is loaded from it is widened and what is stored to it is narrowed, so that arithmetic stays
in f32 and every result is rounded to a half once, when it is written. A kernel that moves words of any type
(`array<u32>`) sees an f32's bits in place of a half. Which bindings are halves is part of a pipeline's key.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from hightide.errors import UnsupportedError

_DECLARED = re.compile(
    r"@binding\((?P<number>[\d\s+]+)\)\s*var<storage,\s*\w+>\s*(?P<name>\w+)\s*:\s*array<(?P<type>[^;]*)>\s*;"
)
_COMMENT = re.compile(r"//[^\n]*")
_STORE = re.compile(r"\s*(?P<operator>[-+*/|&^]?)=(?!=)")
_SUFFIX = re.compile(r"\s*\.[xyzwrgba]+")
_SCALARS = ("f32", "i32", "u32", "bool")


@dataclass(frozen=True)
class _Held:
    """One binding: how its elements are named in memory, and in the kernel's arithmetic."""

    name: str
    lanes: int  # 1, or of a vector
    bits: bool  # the kernel sees an element as a word

    def __str__(self) -> str:
        return self._vector("f16")

    def widened(self, access: str) -> str:
        value = f"{self._vector('f32')}({access})"
        return f"bitcast<{self._vector('u32')}>({value})" if self.bits else value

    def narrowed(self, value: str, component: bool) -> str:
        if self.bits:
            value = f"bitcast<{'f32' if component else self._vector('f32')}>({value})"
        return f"{'f16' if component else self}({value})"

    def _vector(self, scalar: str) -> str:
        return scalar if self.lanes == 1 else f"vec{self.lanes}<{scalar}>"


def as_halves(source: str, bindings: Collection[int]) -> str:
    """The kernel with these bindings (by their number in the source) held as halves."""
    if not bindings:
        return source
    source = _COMMENT.sub("", source)  # brackets in comments need not match
    held: dict[str, _Held] = {}

    def declare(match: re.Match[str]) -> str:
        if sum(map(int, match["number"].split("+"))) not in bindings:
            return match[0]
        known = re.fullmatch(r"(?:vec([234])<)?([fu])32>?", match["type"].strip())
        if known is None:
            raise UnsupportedError(f"halves have no form as array<{match['type']}> ({match['name']})")
        binding = held[match["name"]] = _Held(match["name"], int(known[1] or 1), known[2] == "u")
        start, end = match.start("type") - match.start(), match.end("type") - match.start()
        return f"{match[0][:start]}{binding}{match[0][end:]}"

    source = _DECLARED.sub(declare, source)
    if len(held) != len(bindings):
        raise UnsupportedError(f"bindings {sorted(bindings)} are held as halves; the kernel declares {sorted(held)}")
    for name in held:
        _refuse_shadows(source, name)
    return "enable f16;\n" + _rewrite(source, held)


def _refuse_shadows(source: str, name: str) -> None:
    """A local of the binding's name would be taken for it, unless it cannot be indexed."""
    for match in re.finditer(rf"(?:[(,]\s*|\b(?:let|var|const)\s+){name}\s*(?::\s*([\w<>]+)|=)", source):
        if match[1] not in _SCALARS:
            raise UnsupportedError(f"{name} is the name of a binding held as halves, and of a local")


def _rewrite(source: str, held: dict[str, _Held]) -> str:
    """Widen and narrow at every access `name[...]`."""
    accesses = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, held))})\s*\[")
    done, at = [], 0
    while match := accesses.search(source, at):
        binding = held[match[1]]
        end = _closing(source, match.end() - 1) + 1
        access = f"{match[1]}[{_rewrite(source[match.end() : end - 1], held)}]"
        done.append(source[at : match.start()])
        suffix_end = _after_component(source, end)
        component = source[end:suffix_end]
        if store := _STORE.match(source, suffix_end):
            last = _statement_end(source, store.end())
            value = _rewrite(source[store.end() : last].strip(), held)
            if operator := store["operator"]:
                value = f"{binding.widened(access)}{component} {operator} ({value})"
            done.append(f"{access}{component} = {binding.narrowed(value, bool(component))}")
            at = last
        else:
            done.append(binding.widened(access))
            at = end
    return "".join((*done, source[at:]))


def _after_component(source: str, at: int) -> int:
    """Past a component (`.x`, `[c]`) of the element that ends here, if one follows."""
    if match := _SUFFIX.match(source, at):
        return match.end()
    return _closing(source, at) + 1 if source.startswith("[", at) else at


def _closing(source: str, at: int) -> int:
    """Where the bracket that opens here is closed."""
    depth = 0
    for place in range(at, len(source)):
        depth += (source[place] in "[({") - (source[place] in "])}")
        if depth == 0:
            return place
    raise UnsupportedError("a bracket of the kernel is never closed")


def _statement_end(source: str, at: int) -> int:
    """The semicolon, or the bracket of a `for` header, at which the statement ends."""
    while at < len(source) and source[at] not in ";)":
        at = _closing(source, at) + 1 if source[at] in "[({" else at + 1
    return at
