"""The cases of the scatter ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import CONTEXT, Case, In, floats, x3

pooled = In(("B", 2, 4, 3))

CASES = [
    # a row per index, of some dims or all
    Case("index_put", "aten.index_put.default", (In((CONTEXT, 6)), [In(("S",), "int32", -64, 63)], In(("S", 6)))),
    Case(
        "index_put_inner",
        "aten.index_put.default",
        (In((2, 19, 5)), [None, In(("S",), "int32", -19, 18)], In((2, "S", 1))),
    ),
    Case(
        "index_put_pair",
        "aten.index_put.default",
        (In((5, 4, "B")), [In(("S", 1), "int32", -5, 4), In(("T",), "int32", -4, 3)], In(("S", "T", "B"))),
    ),
    Case(
        "index_put_apart",
        "aten.index_put.default",
        (In((5, "B", 4)), [In(("S",), "int32", -5, 4), None, In((), "int32", -4, 3)], In(("S", "B"))),
    ),
    Case(
        "index_put_ints",
        "aten.index_put.default",
        (In(("B", 7), "int32", -9, 9), [None, In((1, "T"), "int32", 0, 6)], In((), "int32", -9, 9)),
        out="int32",
    ),
    Case(
        "index_put_bytes",
        "aten.index_put.default",
        (In((9, 7), "bool"), [In(("S",), "int32", 0, 8)], In(("S", 7), "bool")),
        out="bool",
    ),
    Case(
        "index_put_sum",
        "aten.index_put.default",
        (In((3, 5)), [In(("S",), "int32", -3, 2)], In(("S", 5)), True),
        tolerance=1e-5,
    ),
    Case(
        "index_put_sum_ints",
        "aten.index_put.default",
        (In((3, 2), "int32", -9, 9), [In(("S",), "int32", 0, 2), In((), "int32", 0, 1)], In((1,), "int32", 1, 9), True),
        out="int32",
    ),
    Case(
        "index_put_many",
        "aten.index_put.default",
        (In((3, 50)), [None, In((1201,), "int32", 0, 49)], In((3, 1201)), True),
        tolerance=1e-5,
    ),
    # an element per index
    Case("scatter", "aten.scatter.src", (In(("S", 12)), 1, In(("S", 5), "int32", 0, 11), In(("S", 7)))),
    Case("scatter_part", "aten.scatter.src", (In((7, 9, 6)), -2, In((4, "S", 5), "int32", 0, 8), In((11, "S", 6)))),
    Case(
        "scatter_bytes",
        "aten.scatter.src",
        (In((9, 7), "int8", -99, 99), 0, In(("S", 7), "int32", 0, 8), In(("S", 7), "int8", -99, 99)),
        out="int8",
    ),
    Case("scatter_scalar", "aten.scatter.src", (In(()), 0, In((), "int32", 0, 0), In(()))),
    Case("scatter_value", "aten.scatter.value", (In(("S", 11)), -1, In(("S", 3), "int32", 0, 10), 1.5)),
    Case(
        "scatter_value_bytes",
        "aten.scatter.value",
        (In((5, "S"), "bool"), 0, In((2, "S"), "int32", 0, 4), 1),
        out="bool",
    ),
    Case(
        "scatter_value_ints",
        "aten.scatter.value",
        (In((7,), "int32", -9, 9), 0, In(("T",), "int32", 0, 6), -3),
        out="int32",
    ),
    Case(
        "scatter_add",
        "aten.scatter_add.default",
        (In(("B", 7)), 1, In(("B", "S"), "int32", 0, 6), In(("B", "S"))),
        tolerance=1e-5,
    ),
    Case(
        "scatter_add_ints",
        "aten.scatter_add.default",
        (In((5, 3), "int32", -9, 9), 0, In(("S", 3), "int32", 0, 4), In(("S", 3), "int32", -9, 9)),
        out="int32",
    ),
    # joined
    *(
        Case(
            f"scatter_reduce_{how}_{with_self}",
            "aten.scatter_reduce.two",
            (In(("B", 7)), 1, In(("B", "S"), "int32", 0, 6), In(("B", "S")), how, with_self),
            tolerance=1e-5,
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for with_self in (False, True)
    ),
    *(
        Case(
            f"scatter_reduce_{how}_ints",
            "aten.scatter_reduce.two",
            (In((5, 3), "int32", -9, 9), 0, In(("S", 3), "int32", 0, 4), In(("S", 3), "int32", -9, 9), how, False),
            out="int32",
        )
        for how in ("mean", "amax", "amin")
    ),
    Case(
        "scatter_multiply",
        "aten.scatter.reduce",
        (In(("S", 12)), 1, In(("S", 5), "int32", 0, 11), In(("S", 7)), "multiply"),
        tolerance=1e-5,
    ),
    Case(
        "scatter_add_value",
        "aten.scatter.value_reduce",
        (In(("S", 11)), -1, In(("S", 3), "int32", 0, 10), 1.5, "add"),
        tolerance=1e-5,
    ),
    Case(
        "scatter_multiply_value",
        "aten.scatter.value_reduce",
        (In((7,), "int32", -9, 9), 0, In(("T",), "int32", 0, 6), -3, "multiply"),
        out="int32",
    ),
    Case(
        "max_pool_gradient",
        "aten.max_pool2d_with_indices_backward.default",
        (pooled, In(("B", 2, 8, "T")), [2, 2], [2, 2], [0, 0], [1, 1], False, In(("B", 2, 4, 3), "int32", 0, 7)),
        tolerance=1e-5,
    ),
    # in order
    Case("masked_scatter", "aten.masked_scatter.default", (x3, In(("B", "S", 10), "bool"), x3)),
    Case("masked_scatter_broadcast", "aten.masked_scatter.default", (In((5,)), In(("S", 1), "bool"), floats(110))),
    Case("masked_scatter_long", "aten.masked_scatter.default", (In(("S", 97)), In(("S", 97), "bool"), floats(2100))),
    Case(
        "masked_scatter_bytes",
        "aten.masked_scatter.default",
        (In(("S", 7), "int8", -9, 9), In(("S", 7), "bool"), In(("S", 9), "int8", -9, 9)),
        out="int8",
    ),
]
