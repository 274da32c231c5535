"""A choice of two routes, and an op that asks for it, for as long as a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hightide.ops.choices import CHOICES, Choice
from hightide.ops.contract import REGISTRY, Context, Dispatch, Op, Tensor
from hightide.ops.movement.strided import copy


class FakeChoice:
    """`test.fake.default` copies its input, by an elementwise kernel ("usual") or by a strided copy ("other"); the
    one named in `slow` does it a hundred times."""

    op = "test.fake.default"

    def __init__(self, slow: str = "", default: str = "usual") -> None:
        self.slow, self.default = slow, default

    def __enter__(self) -> FakeChoice:
        self.choice = Choice("test.route", ("usual", "other"), lambda traits: self.default)
        REGISTRY[self.op] = _Fake(self)
        return self

    def __exit__(self, *_: object) -> None:
        del REGISTRY[self.op], CHOICES[self.choice.name]


class _Fake(Op):
    def __init__(self, fake: FakeChoice) -> None:
        self.fake = fake

    def outputs(self, ctx: Context, x: Tensor) -> Any:
        return [x.dims]

    def plan(self, ctx: Context, x: Tensor, *, out: Tensor) -> Iterator[Dispatch]:
        option = ctx.choose(self.fake.choice)
        for _ in range(100 if option == self.fake.slow else 1):
            if option == "usual":
                yield from REGISTRY["aten.mul.Tensor"].plan(ctx, x, 1.0, out=out)
            else:
                yield copy(x, out)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x
