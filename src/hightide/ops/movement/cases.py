"""The cases of the movement ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import CONTEXT, Case, In, Pos, Size, floats, x2, x3

bools, whole, context = In(("S", 7), "bool"), In((9, 7), "int32"), In((CONTEXT, 6))

CASES = [
    # movement
    Case("permute", "aten.permute_copy.default", (In(("B", "S", 3, 5)), [0, 2, 1, 3])),
    Case("permute_last", "aten.permute_copy.default", (x3, [2, 0, 1])),
    Case("transpose", "aten.t_copy.default", (x2,)),
    Case("slice_literal", "aten.slice_copy.Tensor", (In(("S", 12)), 1, 2, -1, 3)),
    Case("slice_all", "aten.slice_copy.Tensor", (x2, 0, None, 2**63 - 1, 1)),
    Case("slice_tail", "aten.slice_copy.Tensor", (x2, 0, -3, None, 1), dims=[(3, 12)]),
    Case("slice_position", "aten.slice_copy.Tensor", (floats(CONTEXT, 6), 0, Pos(), Pos("S"), 1), dims=[(21, 6)]),
    Case("select_last", "aten.select_copy.int", (x3, 1, -1), empty=False),
    Case("select_first", "aten.select_copy.int", (x3, 0, 0), empty=False),
    Case("expand", "aten.expand_copy.default", (In((1, "S", 1)), [4, -1, 6])),
    Case("expand_live", "aten.expand_copy.default", (In((1, 5)), [Size(2, 0), 5], x2)),
    Case("repeat", "aten.repeat.default", (x2, [2, 1, 3])),
    Case("cat", "aten.cat.default", ([In(("S", 5)), In(("T", 5)), floats(2, 5)], 0)),
    Case("cat_inner", "aten.cat.default", ([In(("S", 5)), In(("S", 3))], -1)),
    Case("split", "aten.split_with_sizes_copy.default", (In(("S", 12)), [3, 4, 5], 1)),
    Case("flip", "aten.flip.default", (x3, [0, 2])),
    Case("bytes_slice", "aten.slice_copy.Tensor", (In(("S", 9), "bool"), 1, 1, 8, 2), out="bool"),
    Case("bytes_permute", "aten.permute_copy.default", (In(("S", 9), "bool"), [1, 0]), out="bool"),
    # movement: padding, windows, bytes
    Case("pad", "aten.constant_pad_nd.default", (x3, [1, 2, 0, 3], 0.5)),
    Case("pad_cut", "aten.constant_pad_nd.default", (x3, [-2, 1, 2, -1, 1, 0], -7.0), empty=False),
    Case("pad_live", "aten.constant_pad_nd.default", (x2, [0, 0, Size(0, 0), 1])),
    Case("pad_ints", "aten.constant_pad_nd.default", (In(("S", 3), "int32"), [2, 2], -5), out="int32"),
    Case("pad_bytes", "aten.constant_pad_nd.default", (In(("S", 3), "bool"), [1, 1, 0, 2], True), out="bool"),
    Case("unfold", "aten.unfold_copy.default", (In(("S", 12, 3)), 1, 4, 3)),
    Case("unfold_live", "aten.unfold_copy.default", (In((2, "S")), -1, 1, 2), empty=False),
    Case("cat_bytes", "aten.cat.default", ([In(("S", 5), "bool"), In(("T", 5), "bool")], 0), out="bool"),
    Case("cat_bytes_inner", "aten.cat.default", ([In(("S", 3), "int8"), In(("S", 6), "int8")], -1), out="int8"),
    Case("repeat_bytes", "aten.repeat.default", (In(("S", 3), "bool"), [2, 1, 3]), out="bool"),
    Case("flip_bytes", "aten.flip.default", (In(("S", 7), "bool"), [0, 1]), out="bool"),
    Case("split_bytes", "aten.split_with_sizes_copy.default", (In(("S", 7), "bool"), [3, 4], 1), out="bool"),
    # parts put in, rows taken apart, triangles
    Case("stack", "aten.stack.default", ([In(("S", 5)), In(("S", 5)), In(("S", 5))], 1)),
    Case("stack_last", "aten.stack.default", ([x3, x3], -1)),
    Case("stack_scalars", "aten.stack.default", ([In((), "int32"), In((), "int32"), In((), "int32")],), out="int32"),
    Case("stack_bytes", "aten.stack.default", ([In(("S", 3), "bool")] * 3, 1), out="bool"),
    Case("split_even", "aten.split_copy.Tensor", (In(("S", 9)), 5, 1)),
    Case("split_even_bytes", "aten.split_copy.Tensor", (In((9, "S"), "int8"), 4), out="int8"),
    Case("unbind", "aten.unbind_copy.int", (In(("S", 3, "T")), 1)),
    Case("unbind_bytes", "aten.unbind_copy.int", (In((3, "S"), "bool"),), out="bool"),
    Case("roll", "aten.roll.default", (x3, [2, -3], [0, 2])),
    Case("roll_rows", "aten.roll.default", (x2, [Size(0, 0), -5], [0, 0])),
    Case("roll_flat", "aten.roll.default", (x2, [7])),
    Case("roll_bytes", "aten.roll.default", (In(("S", 7), "int8", -9, 9), [-2, 3], [-1, 0]), out="int8"),
    Case("tril", "aten.tril.default", (In(("B", "S", 10)),)),
    Case("tril_ints", "aten.tril.default", (In(("S", "T"), "int32"), -2), out="int32"),
    Case("tril_bytes", "aten.tril.default", (In(("S", 7), "bool"), 1), out="bool"),
    Case("triu", "aten.triu.default", (In(("B", "S", "T")), 1)),
    Case("triu_position", "aten.triu.default", (In(("S", CONTEXT)), Pos())),
    Case("select_scatter", "aten.select_scatter.default", (x3, In(("B", 10)), 1, -1), empty=False),
    Case("select_scatter_first", "aten.select_scatter.default", (x3, In(("B", "S")), -1, 3)),
    Case("select_scatter_position", "aten.select_scatter.default", (In((CONTEXT, "S")), In(("S",)), 0, Pos())),
    Case("select_scatter_bytes", "aten.select_scatter.default", (bools, In(("S",), "bool"), 1, 2), out="bool"),
    Case("slice_scatter", "aten.slice_scatter.default", (x2, In(("S", 3)), 1, 2, -1, 3)),
    Case("slice_scatter_one", "aten.slice_scatter.default", (x2, In(("S", 1)), 1, 4, None, 2**40)),
    Case("slice_scatter_all", "aten.slice_scatter.default", (x2, x2)),
    Case("slice_scatter_none", "aten.slice_scatter.default", (x2, In(("S", 0)), 1, 5, 3)),
    Case("slice_scatter_position", "aten.slice_scatter.default", (context, In(("S", 6)), 0, Pos(), Pos("S"), 1)),
    Case("slice_scatter_live", "aten.slice_scatter.default", (context, In(("S", 6)), 0, None, Size(1, 0))),
    Case("slice_scatter_ints", "aten.slice_scatter.default", (whole, In((2, 7), "int32"), 0, 1, 6, 3), out="int32"),
    Case(
        "slice_scatter_bytes", "aten.slice_scatter.default", (bools, In(("S", 3), "bool"), -1, 1, None, 2), out="bool"
    ),
    Case("store", "hightide.store.default", (In((3, 5)), floats(3, 5)), extra={"output": 1}),
]
