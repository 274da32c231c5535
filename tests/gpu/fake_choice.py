"""A choice of two routes, and an op that asks for it, for as long as a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hightide.graph.values import Dims
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
        REGISTRY[self.op] = type("Fake", (_Fake,), {"fake": self})
        return self

    def __exit__(self, *_: object) -> None:
        del REGISTRY[self.op], CHOICES[self.choice.name]


class _Fake(Op):
    x: Tensor
    fake: ClassVar[FakeChoice]

    def outputs(self, ctx: Context) -> list[Dims]:
        return [self.x.dims]

    def plan(self, ctx: Context, out: Tensor) -> Iterator[Dispatch]:
        option = ctx.choose(self.fake.choice)
        for _ in range(100 if option == self.fake.slow else 1):
            if option == "usual":
                yield from REGISTRY["aten.mul.Tensor"].bound({"a": self.x, "b": 1.0}).plan(ctx, out)
            else:
                yield copy(self.x, out)

    reference = staticmethod(lambda x: x)
