"""A choice of two routes, and an op that asks for it, for as long as a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from hightide.ops.arguments import named
from hightide.ops.choices import CHOICES, Choice
from hightide.ops.contract import REGISTRY, Context, Dispatch, Op, Tensor


class FakeChoice:
    """`test.fake.default` copies its input, by an elementwise kernel ("usual") or by a strided copy ("other"); the
    one named in `slow` does it a hundred times."""

    op = "test.fake.default"

    def __init__(self, slow: str = "", default: str = "usual") -> None:
        self.slow, self.default = slow, default

    def __enter__(self) -> FakeChoice:
        self.choice = Choice("test.route", ("usual", "other"), lambda traits: self.default)
        REGISTRY[self.op] = type("Fake", (_Fake,), {"fake": self, "family": "movement"})
        return self

    def __exit__(self, *_: object) -> None:
        del REGISTRY[self.op], CHOICES[self.choice.name]


class Same(Op):
    """Base of ops whose output has the dims of their input."""

    x: Tensor

    def outputs(self, ctx: Context) -> list[tuple[int, ...]]:
        return [self.x.dims]


class _Fake(Same):
    fake: ClassVar[FakeChoice]

    def plan(self, ctx: Context, out: Tensor) -> Iterator[Dispatch]:
        option = ctx.choose(self.fake.choice)
        for _ in range(100 if option == self.fake.slow else 1):
            if option == "usual":
                yield from dispatches(ctx, "aten.mul.Scalar", self.x, 1.0, out=out)
            else:
                yield from dispatches(ctx, "aten.expand_copy.default", self.x, self.x.dims, out=out)

    @staticmethod
    def reference(x: np.ndarray) -> np.ndarray:
        return x


def dispatches(ctx: Context, op: str, *arguments: Any, out: Tensor) -> Iterator[Dispatch]:
    """What another op dispatches."""
    yield from REGISTRY[op].bound(named(REGISTRY[op], arguments)).plan(ctx, out)
