"""The cases of mixtures of experts; see `hightide.ops.case`. Up to five tokens are gathered, more are grouped."""

from __future__ import annotations

from typing import Any

from hightide.ops.case import Blocks, Case, Const, In, floats

COUNT, USED = 5, 2
BOTH = ("int32", "float32")


def experts(name: str, kinds: tuple[str, str], hidden: int, *more: Any, n: int = 64, width: int = 64) -> Case:
    """Weights of two kinds: of gate and up, and of down."""
    x, gate_up = In((1, "S", width), low=-0.1, high=0.1), _parts(kinds[0], 2 * hidden, width)  # halves hold the result
    args = (x, _chosen(), In((1, "S", USED), low=0, high=1), gate_up, _parts(kinds[1], n, hidden), *more)
    return Case(name, "hightide.experts.default", args, tolerance=1e-5)


def _chosen() -> In:
    return In((1, "S", USED), "int32", 0, COUNT - 1)


def _parts(kind: str, rows: int, width: int) -> list[Blocks]:
    return [Blocks(kind, (3, rows, width)), Blocks(kind, (COUNT - 3, rows, width))]


def _bias(rows: int) -> Const:
    return floats(COUNT, rows)


def _routed(name: str, count: int, *more: Any) -> Case:
    return Case(f"route_{name}", "hightide.route_experts.default", (In((1, "S", count)), *more), out=BOTH)


CASES = [
    _routed("softmax", 11, 3),
    _routed("one", 8, 1, None, "softmax", False),
    _routed("shares", 128, 8, None, "softmax", False, 2.5),
    _routed("sigmoid", 70, 6, floats(70, low=-0.1, high=0.1), "sigmoid", True, 2.5),
    _routed("all", 4, 4, None, "sigmoid", False),
    _routed("groups", 24, 3, None, "softmax", False, 1.0, 4, 2),
    _routed("best_two", 24, 4, floats(24, low=-0.1, high=0.1), "sigmoid", True, 1.5, 6, 2),
    _routed("best_two_plain", 12, 3, None, "sigmoid", True, 1.0, 3, 2),
    experts("experts_mxfp4", ("MXFP4", "MXFP4"), 96, None, _bias(192), None, _bias(64), "clamped_swiglu"),
    experts("experts_q4_k", ("Q4_K", "Q6_K"), 256, n=48, width=256),
    experts("experts_q4_1", ("Q4_1", "Q5_1"), 32, n=31),
    experts("experts_q8_0", ("Q8_0", "F16"), 64, n=32, width=32),
    Case("head_linear", "hightide.head_linear.default", (In((1, "S", 3, 64)), Blocks("Q8_0", (3, 20, 64)))),
    Case("head_linear_parts", "hightide.head_linear.default", (In(("S", 5, 32)), _parts("Q4_1", 8, 32))),
    Case(
        "experts_mixed",
        "hightide.experts.default",
        (
            In(("S", 64)),
            In(("S", 3), "int32", 0, 3),
            In(("S", 3), low=0, high=1),
            Blocks("Q5_0", (4, 32, 64)),
            Blocks("F32", (4, 40, 32)),
            Blocks("Q4_0", (4, 32, 64)),
            floats(4, 32),
            floats(4, 32),
            None,
            "gelu_tanh",
        ),
        tolerance=1e-5,
    ),
]
