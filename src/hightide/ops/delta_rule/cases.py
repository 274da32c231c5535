"""The cases of the gated delta rule; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

from hightide.ops.case import Case, In

RULE = "llama.gated_delta_rule.default"


def arguments(heads: int, keys: int, values: int, by_key: bool = False) -> tuple[Any, ...]:
    """Of two sequences. Keys are short: a state must not grow beyond what a float holds well."""
    key, each = In((2, heads, "S", keys), low=-0.5, high=0.5), In((2, heads, "S"), low=0, high=1)
    decay = In((2, heads, "S", keys), low=0, high=1) if by_key else each
    return key, key, In((2, heads, "S", values)), decay, each, In((2, heads, keys, values))


CASES = [
    Case("delta_rule", RULE, arguments(3, 8, 12), out=("float32", "float32"), tolerance=1e-5),
    Case("delta_rule_state", RULE, arguments(2, 7, 5), out=("float32", "float32"), tolerance=1e-5, extra={"output": 1}),
    Case("delta_rule_wide", RULE, arguments(1, 33, 70, by_key=True), out=("float32", "float32"), tolerance=1e-5),
]
