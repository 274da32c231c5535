"""The cases of the embedding ops; see `hightide.ops.case`."""

from __future__ import annotations

from typing import Any

import numpy as np

from hightide.ops.case import Case, Const, In, floats


def q4_table(rows: int, width: int, group: int) -> tuple[Any, ...]:
    return (
        Const(lambda rng: rng.integers(0, 256, (rows, width // 2), dtype=np.uint8)),
        floats(rows, width // group, low=0.01, high=0.1),
        group,
    )


def byte_table(rows: int, width: int, dtype: type[np.integer[Any]] = np.int8) -> Const:
    limits = np.iinfo(dtype)
    return Const(lambda rng: rng.integers(limits.min, limits.max + 1, (rows, width), dtype=dtype))


CASES = [
    Case("embedding", "aten.embedding.default", (floats(30, 12), In((1, "S"), "int32", 0, 29))),
    Case("embedding_q4", "et_vk.embedding_q4gsw.default", (*q4_table(30, 64, 32), In((1, "S"), "int32", 0, 29), False)),
    Case(
        "embedding_4bit",
        "quantized_decomposed.embedding_4bit.dtype",
        (*q4_table(9, 36, 12)[:2], floats(9, 3), -8, 7, In(("B", "S"), "int32", 0, 8), None),
    ),
    Case(
        "embedding_4bit_row_scales",
        "quantized_decomposed.embedding_4bit.dtype",
        (q4_table(7, 10, 10)[0], floats(7, low=0.01, high=0.1), None, -8, 7, In(("S",), "int32", 0, 6), None),
    ),
    Case(
        "embedding_2bit",
        "quantized_decomposed.embedding_2bit.dtype",
        (byte_table(9, 9, np.uint8), floats(9, 3), floats(9, 3), -2, 1, In(("B", "S"), "int32", 0, 8), None),
    ),
    Case("embedding_q4_tied", "et_vk.embedding_q4gsw.default", (*q4_table(9, 36, 12), In(("S",), "int32", 0, 8), True)),
    Case(
        "embedding_byte",
        "quantized_decomposed.embedding_byte.default",
        (byte_table(11, 21), floats(11, 3), None, -128, 127, In(("B", "S"), "int32", 0, 10)),
    ),
    Case(
        "embedding_byte_zeros",
        "quantized_decomposed.embedding_byte.dtype",
        (byte_table(7, 10, np.uint8), floats(7, 2), floats(7, 2, high=99), 0, 255, In(("S",), "int32", 0, 6), None),
    ),
    Case(
        "embedding_byte_row_scales",
        "quantized_decomposed.embedding_byte.default",
        (byte_table(5, 13), floats(5), floats(5, low=-9, high=9), -128, 127, In(("S", 1), "int32", 0, 4)),
    ),
    Case(
        "media_rows",
        "hightide.media_rows.default",
        (In((1, "S", 6)), In((1, "S"), "int32", 0, 14), In((5, 6)), 10),
    ),
]
