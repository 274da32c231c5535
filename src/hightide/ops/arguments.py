"""An op's arguments: declared as annotated fields of its class, with names, types and defaults.

A type is `Tensor`, `int`, `float`, `bool`, `str`, `Int` (a literal or a SymInt), `Any`, one of these or None, or a
tuple of one of these.
"""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import dataclass
from typing import Any, Union

from hightide.errors import UnsupportedError
from hightide.graph.values import ListValue, LiteralValue, SymIntValue, TensorValue, Value
from hightide.ops.kernel import LiveInt, Tensor
from hightide.units import counted

REQUIRED: Any = object()
OpClass = typing.TypeVar("OpClass", bound=type)


@dataclass(frozen=True)
class Argument:
    """One argument of an op."""

    name: str
    type: Any
    default: Any = REQUIRED

    def takes(self, value: Value, values: typing.Sequence[Value]) -> bool:
        """Whether a value of a graph fits it; None stands for an argument that has its default."""
        if isinstance(value, LiteralValue) and value.value is None and self.default is not REQUIRED:
            return True
        return _fits(self.type, value, values)

    def converted(self, literal: Any) -> Any:
        """A literal as the op sees it: None as the default, an int as a float where that is the type."""
        if literal is None and self.default is not REQUIRED:
            return self.default
        kinds = _alternatives(self.type)
        if float in kinds and int not in kinds and isinstance(literal, int) and not isinstance(literal, bool):
            return float(literal)
        return bool(literal) if self.type is bool else literal

    def __str__(self) -> str:
        return _name(self.type)


_DECLARED: dict[type, tuple[Argument, ...]] = {}


def arguments_of(cls: type) -> tuple[Argument, ...]:
    """The fields of an op class, those of its bases first."""
    if cls not in _DECLARED:
        _DECLARED[cls] = _read(cls)
    return _DECLARED[cls]


def _read(cls: type) -> tuple[Argument, ...]:
    hints = typing.get_type_hints(cls)
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        names.update(dict.fromkeys(inspect.get_annotations(base)))
    return tuple(
        Argument(name, hints[name], getattr(cls, name, REQUIRED))
        for name in names
        if not name.startswith("_") and typing.get_origin(hints[name]) is not typing.ClassVar
    )


def ignores(*names: str) -> typing.Callable[[OpClass], OpClass]:
    """Give an op arguments that exporters pass behind its own, and that say nothing it needs to know."""

    def declare(cls: OpClass) -> OpClass:
        for name in names:
            cls.__annotations__[name] = Any
            setattr(cls, name, None)
        return cls

    return declare


def named(cls: type, given: typing.Sequence[Any]) -> dict[str, Any]:
    """Arguments in order, by name, as the op sees them; UnsupportedError for more than it declares."""
    declared = arguments_of(cls)
    if len(given) > len(declared):
        raise UnsupportedError(f"it was given {counted(len(given), 'argument')}; it takes {len(declared)}")
    return converted(cls, {argument.name: value for argument, value in zip(declared, given, strict=False)})


def converted(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """Literals as the op sees them; tensors and lists as they are."""
    literal = (int, float, bool, type(None))
    return {
        argument.name: argument.converted(value) if isinstance(value := given[argument.name], literal) else value
        for argument in arguments_of(cls)
        if argument.name in given
    }


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(hint: Any, value: Value, values: typing.Sequence[Value]) -> bool:
    if hint is Any:
        return True
    for kind in _alternatives(hint):
        items = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else None
        match value:
            case TensorValue():
                fits = kind is Tensor
            case SymIntValue():
                fits = kind is LiveInt
            case ListValue(items=ids):
                fits = items is not None and all(_fits(items, values[id], values) for id in ids)
            case LiteralValue(value=tuple() as literal):
                fits = items is not None and all(_literal_fits(items, item) for item in literal)
            case LiteralValue(value=literal):
                fits = _literal_fits(kind, literal)
        if fits:
            return True
    return False


def _literal_fits(hint: Any, literal: Any) -> bool:
    for kind in _alternatives(hint):
        if kind is Any or (kind is float and isinstance(literal, int)) or (kind is bool and literal in (0, 1)):
            return True
        if isinstance(kind, type) and isinstance(literal, kind):
            return True
    return False


def _name(hint: Any) -> str:
    if typing.get_origin(hint) is tuple:
        return f"list of {_name(typing.get_args(hint)[0])}"
    names = {Tensor: "tensor", LiveInt: "SymInt", types.NoneType: "None", Any: "anything"}
    return " or ".join(
        dict.fromkeys(
            names.get(kind, getattr(kind, "__name__", str(kind)))
            if typing.get_origin(kind) is not tuple
            else _name(kind)
            for kind in _alternatives(hint)
        )
    )
