"""Kernel sources rewritten for halves, and graphs whose tensors are held as other types than they say."""

from __future__ import annotations

import numpy as np
import pytest
from hightide.gpu.halves import as_halves, held

from hightide.errors import UnsupportedError
from hightide.graph.values import TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.traits import Traits

HEAD = """
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(2 + 2) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<storage, read_write> words: array<u32>;
"""


def body(line: str, *bindings: int) -> str:
    """The line as it becomes."""
    return as_halves(HEAD + line, bindings).splitlines()[-1]


def test_without_halves_nothing_changes() -> None:
    assert as_halves(HEAD, ()) == HEAD


def test_declarations() -> None:
    source = as_halves(HEAD, [2, 3, 4, 5])
    assert source.startswith("enable f16;\n")
    assert [line.split(": ")[1] for line in source.splitlines()[2:]] == [
        "array<f16>;",
        "array<vec4<f16>>;",
        "array<f16>;",
        "array<f16>;",
    ]
    assert as_halves(HEAD, [4]).count("f16>") == 1


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("let a = x[i + 1u];", "let a = f32(x[i + 1u]);"),
        ("let a = v[i].x * dot(v[j], b);", "let a = vec4<f32>(v[i]).x * dot(vec4<f32>(v[j]), b);"),
        ("let a = x[u32(x[i])];", "let a = f32(x[u32(f32(x[i]))]);"),
        ("let a = max_x[i] + p.x[i];", "let a = max_x[i] + p.x[i];"),
        ("out[at(i)] = max(x[i], 0.0);", "out[at(i)] = f16(max(f32(x[i]), 0.0));"),
        ("out[i] += a * b;", "out[i] = f16(f32(out[i]) + (a * b));"),
        ("if (out[i] == x[i]) { out[i] = 0.0; }", "if (f32(out[i]) == f32(x[i])) { out[i] = f16(0.0); }"),
        ("if (x[i] <= y) { return; }", "if (f32(x[i]) <= y) { return; }"),
        ("words[i] = words[j];", "words[i] = f16(bitcast<f32>(bitcast<u32>(f32(words[j]))));"),
        ("v[i][c] = a; v[i].y = b;", "v[i][c] = f16(a); v[i].y = f16(b);"),
        ("v[i] = a; // v[", "v[i] = vec4<f16>(a); "),
        ("for (var i = 0u; i < n; out[i] = f(i)) {}", "for (var i = 0u; i < n; out[i] = f16(f(i))) {}"),
    ],
)
def test_accesses(line: str, becomes: str) -> None:
    assert body(line, 2, 3, 4, 5) == becomes


def test_other_bindings_stay() -> None:
    assert body("out[i] = x[i];", 2) == "out[i] = f32(x[i]);"
    assert body("out[i] = x[i];", 4) == "out[i] = f16(x[i]);"


def test_what_cannot_be_rewritten_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="array<i32>"):
        as_halves("@group(0) @binding(2) var<storage, read> x: array<i32>;", [2])
    with pytest.raises(UnsupportedError, match=r"\[9\]"):
        as_halves(HEAD, [9])
    with pytest.raises(UnsupportedError, match="and of a local"):
        as_halves(HEAD + "fn f(x: vec4<f32>) -> f32 { return x[0]; }", [2])
    assert "x * 2.0" in as_halves(HEAD + "fn f(x: f32) -> f32 { return x * 2.0; }", [2])


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
