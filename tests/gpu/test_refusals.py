"""What the kernels have no form for is refused when a session is built, with the op's name and the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hightide.errors import HightideError
from hightide.gpu.device import Device
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.runtime.gpu_session import GpuSession

F, I8, I32, BOOL = "float32", "int8", "int32", "bool"
ONES, ZEROS, HALVES = [1, 1], [0, 0], np.ones((2, 3, 3, 3), np.float16)

# op, inputs (dims, type) and other arguments in order, the output's type, what the error says
REFUSED: list[tuple[str, list[Any], str, str]] = [
    ("aten.amax.default", [((3, 4), I8), [1]], BOOL, "reducing int8 to bool"),
    ("aten.sum.dim_IntList", [((3, 4), I8), [1]], I8, "reducing int8"),
    ("aten.var.correction", [((3, 4), I32), [1]], F, "int32"),
    ("aten.cumsum.default", [((3, 4), F), 1], I32, "joining float32 up to each in int32"),
    ("aten.index_put.default", [((3, 4), F), [((3,), BOOL)], ((), F)], F, "an index of bool"),
    ("aten.index_put.default", [((3, 4), I8), [((3,), I32)], ((), I8), True], I8, "joining int8 by index"),
    ("aten.scatter.src", [((3, 4), F), 0, ((3, 4), I32), ((3, 4), I32)], F, "moving int32 to float32"),
    ("aten._softmax.default", [((3, 4), I32), -1, False], I32, "int32"),
    ("aten.convolution.default", [((1, 3, 5, 5), I32), HALVES, None, ONES, ZEROS, ONES, False, ZEROS, 1], F, "int32"),
    ("aten.linear.default", [((3, 4), I8), np.ones((2, 4), np.float32)], F, "int8"),
    ("et_vk.rms_norm.default", [((3, 4), I32), np.ones(4, np.float32), 1e-6], F, "int32"),
    ("aten.index.Tensor", [((3, 4), F), [((3,), BOOL)]], F, "a mask gives dims that depend on its elements"),
    ("aten.embedding.default", [np.ones((5, 4), np.int8), ((3,), I32)], I8, "int8"),
    ("aten.permute_copy.default", [((2,) * 9, F), [8, 7, 6, 5, 4, 3, 2, 1, 0]], F, "rank 9"),
    ("aten.add.Tensor", [((2,) * 9, F), ((1,) * 8 + (2,), F)], F, "rank 9"),
    ("aten.grid_sampler_2d.default", [((1, 2, 4, 4), F), ((1, 3, 3, 2), F), 3, 0, True], F, "interpolation mode 3"),
    ("aten.bitwise_and.Tensor", [((3,), F), ((3,), F)], F, "no form in f32"),
    ("et_vk.apply_rotary_emb.default", [((1, 2, 3, 8), I32)] * 2 + [((2, 4), F)] * 2, I32, "int32"),
    ("custom_sdpa.default", [((1, 2, 3, 8), F)] + [((1, 9, 3, 8), F)] * 2 + [0, ((2, 9), F), 0.0, True], F, "no mask"),
    (
        "quantized_decomposed.embedding_4bit.dtype",
        [np.ones((5, 4), np.uint8), np.ones((5, 1), np.float32), None, 0, 15, ((3,), I32)],
        F,
        "0 to 15",
    ),
]


def argument(builder: GraphBuilder, arg: Any) -> Any:
    if isinstance(arg, tuple):
        return builder.input(*arg)
    if isinstance(arg, list):
        return [argument(builder, a) for a in arg]
    return builder.constant(arg) if isinstance(arg, np.ndarray) else arg


@pytest.mark.parametrize(("op", "args", "out", "reason"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_refused_with_the_reason(op: str, args: list[Any], out: str, reason: str, device: Device) -> None:
    builder = GraphBuilder()
    with pytest.raises(HightideError) as refused:
        # The dims of an output are asked of the op, which may refuse already.
        result = builder.call(op, *(argument(builder, arg) for arg in args), dtype=out)
        GpuSession(builder.graph(*(result if isinstance(result, tuple) else (result,))), device)
    assert reason in str(refused.value)
    if builder.calls:
        assert op in str(refused.value)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int16"])
def test_types_without_a_form_are_named(dtype: str, device: Device) -> None:
    builder = GraphBuilder()
    x = builder.input((3,), dtype)
    graph = builder.graph(builder.call("aten.clone.default", x, dtype=dtype))
    assert isinstance(x, TensorValue)
    with pytest.raises(HightideError, match=dtype):
        GpuSession(graph, device)
