"""Graphs whose tensors are held as other types than they say: halves, where the adapter has none."""

from __future__ import annotations

import numpy as np
import pytest

from hightide.fuse.half_storage import held
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.traits import Traits


def test_halves_need_an_adapter_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = GraphBuilder()
    x = builder.input((3,), "float16")
    weight = builder.constant(np.ones(3, np.float16))
    graph = builder.graph(builder.call("aten.add.Tensor", x, weight, dtype="float16"))
    able, unable = Traits(f16=True), Traits()
    assert held(graph, able) is graph
    for wide in (held(graph, unable), held(graph, able, f16=False), held(graph, unable, f16=True)):
        tensors = [v for v in wide.values if isinstance(v, TensorValue)]
        assert [(v.dtype, v.host_dtype) for v in tensors] == [("float32", "float16")] * 3
        assert [v.stored_dtype for v in tensors if v.constant] == ["float16"]  # as the file has it
    monkeypatch.setenv("HIGHTIDE_F16", "0")
    assert held(graph, able) != graph
    assert held(graph, able, f16=True) is graph
