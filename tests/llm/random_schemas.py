"""Random JSON schemas that have answers of some dozen tokens: nested, with bounds, patterns, choices and references."""

from __future__ import annotations

from typing import Any

import numpy as np

PATTERNS = ["^[a-c]{1,4}$", "^(ab|ba)+c?$", "^[0-9]{2}-[0-9]{2}$", "^x?y{2,3}$", "^(true|1\\.[05])$"]
FORMATS = ["ipv4", "uuid"]
NAMES = ["a", "b2", "name", 'quo"te', "true", "é", "a b"]


def random_schema(rng: np.random.Generator, depth: int = 3) -> dict[str, Any]:
    """An object at the top, where a reference may lead to a definition of its own."""
    shared = {"leaf": _leaf(rng), "pair": {"type": "array", "items": _leaf(rng), "minItems": 2, "maxItems": 2}}
    schema = _object(rng, depth) if rng.random() < 0.8 else _any(rng, depth)
    return {**schema, "$defs": shared}


def _any(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    kinds = [_leaf, _leaf, _reference] if depth <= 0 else [_leaf, _leaf, _reference, _object, _array, _any_of]
    kind = kinds[int(rng.integers(len(kinds)))]
    return kind(rng) if kind in (_leaf, _reference) else kind(rng, depth)  # type: ignore[operator]


def _leaf(rng: np.random.Generator) -> dict[str, Any]:
    kinds = [_integer, _number, _string, _pattern, _enum, _constant, _format]
    return kinds[int(rng.integers(len(kinds)))](rng)


def _integer(rng: np.random.Generator) -> dict[str, Any]:
    low = int(rng.integers(-1000, 1000))
    schema: dict[str, Any] = {"type": "integer"}
    schema["minimum" if rng.random() < 0.7 else "exclusiveMinimum"] = low
    schema["maximum" if rng.random() < 0.7 else "exclusiveMaximum"] = low + int(rng.integers(3, 5000))
    if rng.random() < 0.2:
        schema |= {"multipleOf": 3, "maximum": low + 100}
    return schema


def _number(rng: np.random.Generator) -> dict[str, Any]:
    low = round(float(rng.uniform(-50, 50)), 2)
    return {"type": "number", "minimum": low, "maximum": low + round(float(rng.uniform(0.5, 300)), 2)}


def _string(rng: np.random.Generator) -> dict[str, Any]:
    shortest = int(rng.integers(0, 4))
    return {"type": "string", "minLength": shortest, "maxLength": shortest + int(rng.integers(0, 6))}


def _pattern(rng: np.random.Generator) -> dict[str, Any]:
    return {"type": "string", "pattern": PATTERNS[int(rng.integers(len(PATTERNS)))], "maxLength": 12}


def _format(rng: np.random.Generator) -> dict[str, Any]:
    return {"type": "string", "format": FORMATS[int(rng.integers(len(FORMATS)))]}


def _enum(rng: np.random.Generator) -> dict[str, Any]:
    values = ["red", "re", 12, 1.5, None, True, {"a": [1]}, "ne\nw", "é"]
    return {"enum": [values[int(n)] for n in rng.choice(len(values), int(rng.integers(1, 5)), replace=False)]}


def _constant(rng: np.random.Generator) -> dict[str, Any]:
    return [{"type": "null"}, {"type": "boolean"}, {"const": "only this"}][int(rng.integers(3))]


def _reference(rng: np.random.Generator) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{'leaf' if rng.random() < 0.6 else 'pair'}"}


def _object(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    names = [NAMES[int(n)] for n in rng.permutation(len(NAMES))[: int(rng.integers(1, 4))]]
    required = [name for name in names if rng.random() < 0.7]
    properties = {name: _any(rng, depth - 1) for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _array(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    least = int(rng.integers(0, 3))
    most = least + int(rng.integers(0, 3))
    schema = {"type": "array", "items": _any(rng, depth - 1), "minItems": least, "maxItems": most}
    return schema | ({"prefixItems": [_leaf(rng)]} if rng.random() < 0.3 and most else {})


def _any_of(rng: np.random.Generator, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(rng, depth - 1) for _ in range(int(rng.integers(2, 4)))]}
