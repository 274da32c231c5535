"""A kernel's WGSL for one variant: what it declares, and its text for the bindings that are held as halves.

Every f32 binding `x` is read with `load_x(i)` and written with `store_x(i, value)`, in f32 however it is held: as f32,
or as f16, which is widened and narrowed there. So arithmetic is in f32, and a result is rounded to a half once. A
binding of type `word` holds 32-bit words of any type, or halves, which the kernel sees as the bits of an f32. Other
vectors that are only read are read with `load_x(i)` too, so that `gpu/wide_loads.py` can change how.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

from hightide.errors import UnsupportedError
from hightide.wgsl.preprocessor import Constants, Declared, Line, WgslError, expand

PARAMS_SIZE = 256  # bytes of one dispatch's parameters: WebGPU's largest offset alignment
SYMINT_SLOTS = 4096  # as declared in symints.wgsl
FIRST_BINDING = 2  # behind the parameters and the SymInts

ParamValue: TypeAlias = int | float | bool | tuple[int, ...]
ParamValues: TypeAlias = tuple[ParamValue, ...]

_VECTOR = re.compile(r"(?:vec([234])<)?(f32|word)>?")
_TOO_LARGE = 3.4028235677973366e38  # from here on a number rounds to an infinity in float32
_ARRAY = re.compile(r"array<vec4<u32>, ?(\d+)>")
_ACCESS = re.compile(r"\b(load|store)_(\w+)\(")
_COMMENT = re.compile(r"//.*")


@dataclass(frozen=True)
class Binding:
    """A storage buffer of a kernel."""

    name: str
    type: str  # of an element: "f32", "vec4<f32>", "word", "i32", "vec4<u32>", ...
    line: Line

    @property
    def scalar(self) -> str:
        """The type of an element's components."""
        return re.sub(r"vec\d<(.*)>", r"\1", self.type)

    @property
    def may_be_halves(self) -> bool:
        return self.scalar in ("f32", "word")


@dataclass(frozen=True, eq=False)  # compared by identity: plans look parameters up by it
class Interface:
    """What a variant of a kernel takes: parameters and bindings, by name."""

    file: str
    params: tuple[Declared, ...]
    reads: tuple[Binding, ...]
    writes: tuple[Binding, ...]
    absent: frozenset[str]  # names that the file declares, but not in this variant
    param_names: tuple[str, ...] = field(init=False)
    read_names: tuple[str, ...] = field(init=False)
    write_names: tuple[str, ...] = field(init=False)
    binding_names: tuple[str, ...] = field(init=False)  # reads, then writes: as they are numbered
    live: frozenset[str] = field(init=False)  # parameters that may be SymInts
    count: int = field(init=False)  # of parameters and bindings
    layout: _Layout = field(init=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "param_names", tuple(p.name for p in self.params))
        set_field(self, "read_names", tuple(b.name for b in self.reads))
        set_field(self, "write_names", tuple(b.name for b in self.writes))
        set_field(self, "binding_names", self.read_names + self.write_names)
        set_field(self, "count", len(self.param_names) + len(self.binding_names))
        set_field(self, "live", frozenset(p.name for p in self.params if p.type == "live"))
        set_field(self, "layout", _Layout(self.params))

    def pack(self, values: ParamValues) -> bytes:
        """The parameters as a block of `PARAMS_SIZE` bytes."""
        return self.layout.pack(values)


@dataclass(frozen=True, eq=False)  # compared by identity: `shader` makes each once
class Shader:
    """Text for a GPU compiler."""

    name: str
    text: str
    interface: Interface
    origins: tuple[tuple[str, int], ...]  # of each line of the text: its file and line; ("", 0) for what is generated

    @property
    def live(self) -> bool:
        """It reads SymInts."""
        return bool(self.interface.live)

    def listing(self) -> str:
        """The text with the place of each line, for messages."""
        places = [f"{file.rsplit('/', 1)[-1]}:{number}" if file else "" for file, number in self.origins]
        width = max(map(len, places), default=0)
        return "\n".join(
            f"{n:4} {place:{width}} {line}"
            for n, (place, line) in enumerate(zip(places, self.text.splitlines(), strict=True), 1)
        )


@cache
def interface(root: str, file: str, constants: tuple[tuple[str, Any], ...]) -> Interface:
    """What the file declares for these constants."""
    return _load(root, file, constants)[0]


def shader(root: str, file: str, name: str, constants: tuple[tuple[str, Any], ...], halves: frozenset[str]) -> Shader:
    """The kernel with the bindings named in `halves` held as halves."""
    declared, lines = _load(root, file, constants)
    bindings = [*declared.reads, *declared.writes]
    for binding in bindings:
        if binding.name in halves and not binding.may_be_halves:
            raise binding.line.error(f"{binding.name} is held as halves, which have no form as {binding.type}")
    used = {(found[1], found[2]) for line in lines for found in _ACCESS.finditer(line.text)}
    head = ["enable f16;"] if halves else []
    head += _prelude("groups.wgsl")
    if declared.live:
        head += _prelude("symints.wgsl")
    if declared.params:
        fields = (f"    {p.name}: {'vec2<i32>' if p.type == 'live' else p.type}," for p in declared.params)
        head += ["struct Params {", *fields, "}", "@group(0) @binding(0) var<uniform> params: Params;"]
    for number, binding in enumerate(bindings, FIRST_BINDING):
        access = "read" if binding in declared.reads else "read_write"
        head += _declaration(binding, number, access, binding.name in halves, used)
    text = "\n".join((*head, *(line.text for line in lines))) + "\n"
    origins = (*((("", 0),) * len(head)), *((line.file, line.number) for line in lines))
    return Shader(name, text, declared, origins)


@cache
def _load(root: str, file: str, constants: tuple[tuple[str, Any], ...]) -> tuple[Interface, tuple[Line, ...]]:
    given: Constants = dict(constants)
    expanded = expand(root, file, given)
    reads, writes = (tuple(Binding(d.name, d.type, d.line) for d in kind) for kind in (expanded.reads, expanded.writes))
    names = {d.name for kind in (expanded.params, expanded.reads, expanded.writes) for d in kind}
    declared = Interface(file, tuple(expanded.params), reads, writes, frozenset(expanded.absent - names))
    _check_accesses(declared, expanded.lines)
    return declared, tuple(expanded.lines)


def _check_accesses(declared: Interface, lines: Sequence[Line]) -> None:
    """f32, words and vectors that are read are not indexed, but loaded and stored; what is stored to is written."""
    for binding in (*declared.reads, *declared.writes):
        vector_read = binding in declared.reads and binding.type.startswith("vec")
        if not (binding.may_be_halves or vector_read):
            continue
        indexed = re.compile(rf"(?<![\w.]){binding.name}\s*\[")
        for line in lines:
            if indexed.search(_COMMENT.sub("", line.text)):
                raise line.error(f"{binding.name} is {binding.type}: read it with load_{binding.name}(i)")
    for line in lines:
        for found in _ACCESS.finditer(_COMMENT.sub("", line.text)):
            if found[1] == "store" and found[2] in declared.read_names:
                raise line.error(f"{found[2]} is declared with #read, and is stored to")


def _declaration(binding: Binding, number: int, access: str, half: bool, used: set[tuple[str, str]]) -> list[str]:
    """The binding, and the functions that load and store it, where they are used."""
    name = binding.name
    kind = _VECTOR.fullmatch(binding.type)
    if kind is None:
        seen = held = binding.type
        load, store = f"{name}[i]", "value"
    else:

        def vector(scalar: str) -> str:
            return f"vec{kind[1]}<{scalar}>" if kind[1] else scalar

        seen = vector("u32" if kind[2] == "word" else "f32")
        held = vector("f16") if half else seen
        load, store = f"{name}[i]", "value"
        if half:
            load, store = f"{vector('f32')}({name}[i])", f"{held}(value)"
            if kind[2] == "word":
                load, store = f"bitcast<{seen}>({load})", f"{held}(bitcast<{vector('f32')}>(value))"
    lines = [f"@group(0) @binding({number}) var<storage, {access}> {name}: array<{held}>;"]
    if ("load", name) in used:
        lines.append(f"fn load_{name}(i: u32) -> {seen} {{ return {load}; }}")
    if ("store", name) in used:
        lines.append(f"fn store_{name}(i: u32, value: {seen}) {{ {name}[i] = {store}; }}")
    return lines


@cache
def _prelude(file: str) -> list[str]:
    return resources.files("hightide.wgsl").joinpath(file).read_text("utf-8").splitlines()


class _Layout:
    """How parameters lie in their block, by WGSL's rules for a uniform."""

    def __init__(self, params: Sequence[Declared]) -> None:
        code, size = "<", 0
        self._convert: list[tuple[Declared, Callable[[Any], Sequence[int | float]]]] = []
        for param in params:
            alignment, letters, convert = _field(param)
            code += f"{-size % alignment}x{letters}"
            size += -size % alignment + struct.calcsize("<" + letters)
            self._convert.append((param, convert))
        if size > PARAMS_SIZE:
            raise params[-1].line.error(f"parameters take {size} bytes, more than {PARAMS_SIZE}")
        self._struct = struct.Struct(code + f"{PARAMS_SIZE - size}x")

    def pack(self, values: ParamValues) -> bytes:
        words: list[int | float] = []
        for (param, convert), value in zip(self._convert, values, strict=True):
            try:
                words += convert(value)
            except (TypeError, ValueError, OverflowError):
                raise param.line.error(f"parameter {param.name} is {param.type}; it was given {value!r}") from None
        try:
            return self._struct.pack(*words)
        except struct.error:
            given = ", ".join(f"{param.name}={value}" for (param, _), value in zip(self._convert, values, strict=True))
            raise UnsupportedError(f"a number does not fit the 32 bits of a kernel's parameters: {given}") from None


def _field(param: Declared) -> tuple[int, str, Callable[[Any], Sequence[int | float]]]:
    """(alignment, struct code, words of a value)."""
    if array := _ARRAY.fullmatch(param.type):
        count = 4 * int(array[1])
        return 16, f"{count}I", lambda value: _words(value, count)
    match param.type:
        case "u32":
            return 4, "I", lambda value: (_whole(value) & 0xFFFFFFFF,)
        case "i32":
            return 4, "i", lambda value: (_whole(value),)
        case "f32":
            return 4, "f", lambda value: (_single(value),)
        case "vec2<u32>" | "vec2<i32>" | "vec4<u32>":
            count = int(param.type[3])
            return 4 * count, f"{count}I", lambda value: _words(value, count)
        case "live":
            return 8, "2i", lambda value: (_whole(value[0]), _whole(value[1]))
    raise param.line.error(f"a parameter has no type {param.type}")


def _single(value: Any) -> float:
    """What float32 makes of a number: an infinity of one that is too large."""
    number = float(value)
    return math.copysign(math.inf, number) if abs(number) >= _TOO_LARGE else number


def _whole(value: Any) -> int:
    if isinstance(value, float):
        raise TypeError
    return int(value)


def _words(value: tuple[int, ...], count: int) -> list[int]:
    if len(value) > count:
        raise ValueError
    return [_whole(v) & 0xFFFFFFFF for v in value] + [0] * (count - len(value))


__all__ = [
    "PARAMS_SIZE",
    "SYMINT_SLOTS",
    "Binding",
    "Interface",
    "ParamValues",
    "Shader",
    "WgslError",
    "interface",
    "shader",
]
