"""WGSL files: what the preprocessor makes of them, what they declare, and what is wrong with them, by file and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hightide.errors import UnsupportedError
from hightide.graph.symbols import element
from hightide.graph.values import TensorValue
from hightide.ops.kernel import Kernel, LiveInt, Tensor, kernel
from hightide.wgsl.preprocessor import WgslError, expand
from hightide.wgsl.shader import PARAMS_SIZE, Interface, Shader, interface, shader

Package = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Puts texts into a package of their own, the first as main.wgsl, and gives its name."""
    monkeypatch.syspath_prepend(tmp_path)
    numbers = count()

    def make(main: str, **others: str) -> str:
        root = f"{tmp_path.name}_{next(numbers)}"
        (tmp_path / root / "part").mkdir(parents=True)
        (tmp_path / root / "__init__.py").touch()
        for name, text in {"main": main, **others}.items():
            (tmp_path / root / f"{name}.wgsl").write_text(text, encoding="utf-8")
        return root

    return make


def lines(root: str, **constants: Any) -> list[str]:
    return [line.text for line in expand(root, "main.wgsl", constants).lines]


def declared(root: str, **constants: Any) -> Interface:
    return interface(root, "main.wgsl", tuple(sorted(constants.items())))


def text_of(root: str, halves: str = "", **constants: Any) -> str:
    return made(root, halves, **constants).text


def made(root: str, halves: str = "", **constants: Any) -> Shader:
    return shader(root, "main.wgsl", "main", tuple(sorted(constants.items())), frozenset(halves.split()))


# ---- the preprocessor


def test_a_file_without_directives_is_the_same(package: Package) -> None:
    text = "// a comment # with a sign\nlet a = 1 << 2u;\n\n}"
    assert lines(package(text)) == text.split("\n")


def test_constants_stand_for_themselves_in_words_and_braces(package: Package) -> None:
    root = package("const A = $N; x_${N}_y; ${N}u; $T; $FLAG; $SCALE")
    (line,) = lines(root, N=3, T="vec4<f32>", FLAG=True, SCALE=0.5)
    assert line == "const A = 3; x_3_y; 3u; vec4<f32>; true; 0.5"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("N * 2 + 1", "15"),
        ("N // 2 - N % 4", "0"),
        ("-(N - 10)", "3"),
        ("N > 3 and N <= 7", "true"),
        ("N == 3 or not FLAG", "false"),
        ("N != 7 or N < 7 or N >= 8", "false"),
        ("'vec4<' + T + '>'", "vec4<f32>"),
        ("T if FLAG else 'i32'", "f32"),
        ("T in ('i32', 'u32')", "false"),
        ("1 if T == 'f32' else MISSING", "1"),
    ],
)
def test_expressions(package: Package, expression: str, value: str) -> None:
    constants = {"N": 7, "FLAG": True, "T": "f32"}
    assert lines(package(f"x = ${{{expression}}};"), **constants) == [f"x = {value};"]
    assert lines(package(f"#const X = {expression}   // why\nx = $X;"), **constants) == [f"x = {value};"]


def test_consts_may_be_set_anew_and_follow_into_includes(package: Package) -> None:
    root = package(
        '#const A = N\n#include "part/b.wgsl"\n#const A = A + 1\n#include "part/b.wgsl"', **{"part/b": "a$A"}
    )
    assert lines(root, N=4) == ["a4", "a5"]


@pytest.mark.parametrize(("n", "taken"), [(0, "zero"), (1, "one"), (2, "more"), (9, "more")])
def test_the_first_condition_that_holds_is_taken(package: Package, n: int, taken: str) -> None:
    root = package("before\n#if N == 0\nzero\n  #elif N == 1   // indented\n  one\n#else\nmore\n#end\nafter")
    assert [line.strip() for line in lines(root, N=n)] == ["before", taken, "after"]


def test_a_condition_that_does_not_hold_leaves_nothing(package: Package) -> None:
    assert lines(package("a\n#if N > 1\nb $UNKNOWN\n#end\nc"), N=1) == ["a", "c"]


def test_loops_are_written_out_and_nest(package: Package) -> None:
    root = package("#for r in ROWS\n#for c in r + 1\nt_${r}_$c = ${r * 10 + c}u;\n#end\nrow $r;\n#end")
    assert lines(root, ROWS=2) == ["t_0_0 = 0u;", "row 0;", "t_1_0 = 10u;", "t_1_1 = 11u;", "row 1;"]
    assert lines(root, ROWS=0) == []


def test_conditions_in_loops_and_loops_in_conditions(package: Package) -> None:
    root = package("#if ON\n#for r in 3\n#if r == 1\nmiddle\n#else\nend $r\n#end\n#end\n#else\noff\n#end")
    assert lines(root, ON=True) == ["end 0", "middle", "end 2"]
    assert lines(root, ON=False) == ["off"]


def test_a_const_in_a_loop_ends_with_its_turn(package: Package) -> None:
    root = package("#const A = 7\n#for n in 2\n#const A = A + n\na$A\n#end\na$A")
    assert lines(root) == ["a7", "a8", "a7"]


def test_includes_are_named_by_constants_and_keep_their_lines(package: Package) -> None:
    root = package('a\n#include "part/${KIND}.wgsl"\nb', **{"part/q4": "one\ntwo"})
    found = expand(root, "main.wgsl", {"KIND": "q4"}).lines
    assert [(line.text, line.file, line.number) for line in found] == [
        ("a", "main.wgsl", 1),
        ("one", "part/q4.wgsl", 1),
        ("two", "part/q4.wgsl", 2),
        ("b", "main.wgsl", 3),
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a\n#unknown x", 2, "#unknown is not a directive"),
        ("a\n#end", 2, "#end has no #if or #for before it"),
        ("#else", 1, "#else has no #if or #for before it"),
        ("#elif N", 1, "#elif has no #if or #for before it"),
        ("a\n\n#if N\nx\n#for r in 2\n#end", 3, "#if N has no #end"),
        ("#for r in 2\n#if N\n#end", 1, "#for r in 2 has no #end"),
        ("#if\n#end", 1, "write it as #if CONDITION"),
        ("#for r = 2\n#end", 1, "write it as #for NAME in EXPRESSION"),
        ("#for r in T\n#end", 1, "T is 'f32', not a number of turns"),
        ("#const A 2", 1, "write it as #const NAME = EXPRESSION"),
        ("#read x", 1, "write it as #read NAME: TYPE, …"),
        ("#params a: u32,", 1, "write it as #params NAME: TYPE, …"),
        ("#read x: f32\n#write x: f32", 2, "x is declared twice"),
        ("#read x: f32\n#params x: u32", 2, "x is declared twice"),
        ("#include part/a.wgsl", 1, 'an include is #include "folder/file.wgsl"'),
        ('#include "part/none.wgsl"', 1, 'there is no file "part/none.wgsl"'),
        ("a\nb $M c", 2, "$M has no value; there are N, T"),
        ("${M + 1}", 1, "M has no value; there are N, T"),
        ("#if M\n#end", 1, "M has no value; there are N, T"),
        ("#if N\n#elif M\n#end", 2, "M has no value; there are N, T"),
        ("#read x: f32 if M", 1, "M has no value; there are N, T"),
        ("${N +}", 1, "'N +' cannot be evaluated: invalid syntax"),
        ("${N / 2}", 1, "'N / 2' cannot be evaluated: Div is not part of the language"),
        ("${max(N, 2)}", 1, "'max(N, 2)' cannot be evaluated: Call is not part of the language"),
        ("${1 < N < 3}", 1, "'1 < N < 3' cannot be evaluated: Compare is not part of the language"),
        ("${N + T}", 1, "'N + T' cannot be evaluated: unsupported operand type"),
        ("${1 % N}", 1, "'1 % N' cannot be evaluated: integer"),
    ],
)
def test_faults_are_said_with_the_file_and_the_line(package: Package, text: str, line: int, message: str) -> None:
    with pytest.raises(WgslError, match=re.escape(f"main.wgsl:{line}: {message}")):
        lines(package(text), N=0, T="f32")


def test_a_fault_of_an_included_file_is_said_where_it_is(package: Package) -> None:
    root = package('\n#include "part/b.wgsl"', **{"part/b": "fine\n$A"})
    with pytest.raises(WgslError, match=re.escape("part/b.wgsl:2: $A has no value; there are none")):
        lines(root)


# ---- what a kernel declares


def test_declarations_are_read_in_order_and_leave_no_lines(package: Package) -> None:
    root = package(
        "#params rows: u32, dims: array<vec4<u32>, 2>   // a comment\n#read x: vec4<f32>, ids: i32\n"
        "#write out: $T\n#params eps: f32\nbody"
    )
    found = declared(root, T="f32")
    assert found.param_names == ("rows", "dims", "eps")
    assert (found.read_names, found.write_names) == (("x", "ids"), ("out",))
    assert [p.type for p in found.params] == ["u32", "array<vec4<u32>, 2>", "f32"]
    assert [(b.type, b.scalar) for b in (*found.reads, *found.writes)] == [
        ("vec4<f32>", "f32"),
        ("i32", "i32"),
        ("f32", "f32"),
    ]
    assert (found.binding_names, found.count, found.live) == (("x", "ids", "out"), 6, frozenset())
    assert lines(root, T="f32") == ["body"]


CONDITIONAL = """
#read x: f32, bias: f32 if BIAS
#if MASK
#read mask: u32
#params masked: u32
#end
#write out: f32
fn main() { store_out(0u, load_x(0u)); }
"""


def test_what_a_variant_leaves_out_is_absent_and_numbers_close_up(package: Package) -> None:
    """A condition is of all that its line declares."""
    root = package(CONDITIONAL)
    whole, bare = declared(root, BIAS=True, MASK=True), declared(root, BIAS=False, MASK=False)
    assert whole.binding_names == ("x", "bias", "mask", "out") and not whole.absent
    assert bare.binding_names == ("out",) and bare.absent == {"x", "bias", "mask", "masked"}
    assert "@binding(5) var<storage, read_write> out" in text_of(root, BIAS=True, MASK=True)
    assert "@binding(4) var<storage, read_write> out" in text_of(root, BIAS=True, MASK=False)
    assert "@binding(0)" not in text_of(root, BIAS=True, MASK=False)  # no parameters, no block of them


def test_a_name_may_be_declared_by_one_branch_or_another(package: Package) -> None:
    root = package("#if NUMBER\n#params a: f32\n#else\n#read a: f32\n#end")
    assert declared(root, NUMBER=True).param_names == ("a",) and not declared(root, NUMBER=True).absent
    assert declared(root, NUMBER=False).read_names == ("a",) and not declared(root, NUMBER=False).absent


def test_the_text_has_bindings_parameters_and_where_its_lines_stand(package: Package) -> None:
    root = package("// head\n#params rows: u32, start: live\n#read x: u32\n#write out: u32\nfn main() {\n}")
    kernel = made(root)
    text = kernel.text.splitlines()
    assert text[-3:] == ["// head", "fn main() {", "}"]
    assert "fn group_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {" in text
    block = text.index("struct Params {")
    assert text[block : block + 7] == [
        "struct Params {",
        "    rows: u32,",
        "    start: vec2<i32>,",
        "}",
        "@group(0) @binding(0) var<uniform> params: Params;",
        "@group(0) @binding(2) var<storage, read> x: array<u32>;",
        "@group(0) @binding(3) var<storage, read_write> out: array<u32>;",
    ]
    assert kernel.origins[-3:] == (("main.wgsl", 1), ("main.wgsl", 5), ("main.wgsl", 6)) and kernel.origins[0] == (
        "",
        0,
    )
    assert len(kernel.origins) == len(text)
    assert re.search(r"^ *\d+ main.wgsl:5 fn main\(\) {$", kernel.listing(), re.MULTILINE)


def test_symints_are_bound_for_kernels_that_read_them(package: Package) -> None:
    root = package("#params rows: u32\n#if LIVE\n#params position: live\n#end\n#write out: u32")
    assert made(root, LIVE=True).live and "var<uniform> symints" in text_of(root, LIVE=True)
    assert not made(root, LIVE=False).live and "symints" not in text_of(root, LIVE=False)


# ---- loads and stores, of f32 and of halves


ACCESS = "fn main() {{ store_out(1u, load_x(0u)); }}\n#read x: {0}\n#write out: {0}"


@pytest.mark.parametrize(
    ("kind", "halves", "held", "load", "store"),
    [
        ("f32", "", "f32", "-> f32 { return x[i]; }", "value: f32) { out[i] = value; }"),
        ("f32", "x out", "f16", "-> f32 { return f32(x[i]); }", "value: f32) { out[i] = f16(value); }"),
        ("vec4<f32>", "", "vec4<f32>", "-> vec4<f32> { return x[i]; }", "value: vec4<f32>) { out[i] = value; }"),
        (
            "vec4<f32>",
            "x out",
            "vec4<f16>",
            "-> vec4<f32> { return vec4<f32>(x[i]); }",
            "value: vec4<f32>) { out[i] = vec4<f16>(value); }",
        ),
        (
            "vec2<f32>",
            "x out",
            "vec2<f16>",
            "-> vec2<f32> { return vec2<f32>(x[i]); }",
            "value: vec2<f32>) { out[i] = vec2<f16>(value); }",
        ),
        ("word", "", "u32", "-> u32 { return x[i]; }", "value: u32) { out[i] = value; }"),
        (
            "word",
            "x out",
            "f16",
            "-> u32 { return bitcast<u32>(f32(x[i])); }",
            "value: u32) { out[i] = f16(bitcast<f32>(value)); }",
        ),
        (
            "vec4<word>",
            "x out",
            "vec4<f16>",
            "-> vec4<u32> { return bitcast<vec4<u32>>(vec4<f32>(x[i])); }",
            "value: vec4<u32>) { out[i] = vec4<f16>(bitcast<vec4<f32>>(value)); }",
        ),
        ("i32", "", "i32", "-> i32 { return x[i]; }", "value: i32) { out[i] = value; }"),
    ],
)
def test_accesses(package: Package, kind: str, halves: str, held: str, load: str, store: str) -> None:
    text = text_of(package(ACCESS.format(kind)), halves)
    assert text.startswith("enable f16;\n") == bool(halves)
    assert f"var<storage, read> x: array<{held}>;\nfn load_x(i: u32) {load}\n" in text
    assert f"var<storage, read_write> out: array<{held}>;\nfn store_out(i: u32, {store}\n" in text


def test_one_binding_may_be_halves_and_another_not(package: Package) -> None:
    text = text_of(package(ACCESS.format("f32")), "x")
    assert "x: array<f16>" in text and "out: array<f32>" in text


def test_only_functions_that_are_called_are_made(package: Package) -> None:
    text = text_of(package("#read x: f32, y: f32\n#write out: f32\nfn main() { store_out(0u, load_x(load_out(0u))); }"))
    assert re.findall(r"fn (\w+_(?:x|y|out))\(", text) == ["load_x", "load_out", "store_out"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("#read x: f32\n\nlet a = x[0];", 3, "x is f32: read it with load_x(i)"),
        ("#write out: vec4<f32>\nout [i] = a;", 2, "out is vec4<f32>: read it with load_out(i)"),
        ("#read x: word\nlet a = x[0];", 2, "x is word: read it with load_x(i)"),
        ("#read x: f32\nstore_x(0u, 1.0);", 2, "x is declared with #read, and is stored to"),
        ("#params rows: u32\n#params size: u64", 2, "a parameter has no type u64"),
        (
            "#params a: array<vec4<u32>, 12>\n#params b: array<vec4<u32>, 6>",
            2,
            "parameters take 288 bytes, more than 256",
        ),
    ],
)
def test_what_a_kernel_gets_wrong_is_said(package: Package, text: str, line: int, message: str) -> None:
    with pytest.raises(WgslError, match=re.escape(f"main.wgsl:{line}: {message}")):
        text_of(package(text))


def test_comments_and_other_names_are_no_accesses(package: Package) -> None:
    text_of(package("#read x: f32\n// x[0] and store_x(0u)\nlet a = max_x[0] + parts.x[0]; let s = store_xx(0u);"))


def test_halves_have_no_form_as_integers(package: Package) -> None:
    root = package("fn main() {}\n#read x: i32")
    with pytest.raises(WgslError, match=re.escape("main.wgsl:2: x is held as halves, which have no form as i32")):
        text_of(root, "x")


# ---- parameters


def words(root: str, *values: Any) -> np.ndarray:
    packed = declared(root).pack(values)
    assert len(packed) == PARAMS_SIZE
    return np.frombuffer(packed, np.uint32)


def test_parameters_are_packed_by_their_types(package: Package) -> None:
    root = package("#params a: u32, b: i32, c: f32, flag: u32\n#params most: u32")
    packed = words(root, 7, -1, 1.5, True, 2**32 - 1)
    assert packed[:2].tolist() == [7, 2**32 - 1] and packed[2:3].view(np.float32)[0] == 1.5
    assert packed[3:5].tolist() == [1, 2**32 - 1] and not packed[5:].any()


def test_a_u32_takes_the_bits_of_a_negative_number_and_an_f32_whole_numbers(package: Package) -> None:
    packed = words(package("#params a: u32, c: f32"), -2, 3)
    assert packed[0] == 2**32 - 2 and packed[1:2].view(np.float32)[0] == 3


def test_vectors_and_arrays_are_aligned_as_wgsl_says(package: Package) -> None:
    root = package(
        "#params a: u32, pair: vec2<u32>, b: u32, four: vec4<u32>, c: u32, dims: array<vec4<u32>, 2>, d: u32"
    )
    packed = words(root, 1, (2, 3), 4, (5, 6, 7, 8), 9, (10, 11, 12, 13, 14), 15)
    assert packed[:21].tolist() == [1, 0, 2, 3, 4, 0, 0, 0, 5, 6, 7, 8, 9, 0, 0, 0, 10, 11, 12, 13, 14]
    assert packed[21:25].tolist() == [0, 0, 0, 15] and not packed[25:].any()  # what an array is not given is 0


def test_live_parameters_are_a_value_and_a_slot(package: Package) -> None:
    packed = words(package("#params rows: u32, position: live, b: u32"), 1, (40, -1), 2)
    assert packed[:5].tolist() == [1, 0, 40, 2**32 - 1, 2]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("u32", 1.5), ("i32", 0.0), ("f32", "much"), ("u32", None), ("vec2<u32>", (1, 2, 3)), ("vec4<u32>", (1.0,))],
)
def test_a_value_of_another_type_is_refused(package: Package, kind: str, value: Any) -> None:
    found = declared(package(f"#params rows: u32\n#params size: {kind}"))
    message = f"main.wgsl:2: parameter size is {kind}; it was given {value!r}"
    with pytest.raises(WgslError, match=re.escape(message)):
        found.pack((1, value))


# ---- kernels, as ops dispatch them


@pytest.fixture
def route(package: Package, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    """A kernel of a text, with a name of its own: kernels are found again by name, file and constants."""

    def make(text: str, **constants: Any) -> Kernel:
        root = package(text)
        monkeypatch.setattr("hightide.ops.kernel.OPS", root)
        return kernel("main.wgsl", root, **constants)

    return make


def tensor(id: int, dtype: str = "float32") -> Tensor:
    return Tensor(TensorValue(id, (4,), dtype, dtype), (4,))


ROUTE = "#params numel: u32, start: live, eps: f32\n#read x: f32\n#read bias: f32 if BIAS\n#write out: f32"


def test_a_dispatch_has_all_that_is_declared_in_its_order(route: Callable[..., Kernel]) -> None:
    x, bias, out = tensor(0), tensor(1), tensor(2)
    with_bias = route(ROUTE, BIAS=True).over(3, out=out, eps=0.5, bias=bias, x=x, start=9, numel=4)
    assert (with_bias.groups, with_bias.params) == (3, (4, (9, -1), 0.5))
    assert (with_bias.reads, with_bias.writes) == ((x, bias), (out,))
    without = route(ROUTE, BIAS=False).over(3, x=x, bias=None, out=out, numel=4, start=LiveInt(7, 2), eps=0.5)
    assert without.reads == (x,) and without.params == (4, (7, -1), 0.5)


def test_a_live_number_that_the_level_does_not_decide_is_read_from_its_slot(route: Callable[..., Kernel]) -> None:
    made = route("#params start: live").over(1, start=LiveInt(element(0, 0), 5))
    assert made.params == ((0, 5),)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"eps": ...}, "main.wgsl declares eps, which {name} was not given"),
        ({"start": ...}, "main.wgsl declares start, which {name} was not given"),
        ({"x": ...}, "main.wgsl declares x, which {name} was not given"),
        ({"y": 1}, "{name} was given y, which main.wgsl does not declare"),
        ({"y": None}, "{name} was given y, which main.wgsl does not declare"),
        ({"bias": 1}, "{name} was given bias, which main.wgsl leaves out in this variant"),
    ],
)
def test_what_is_missing_or_too_much_is_said(
    route: Callable[..., Kernel], changed: dict[str, Any], message: str
) -> None:
    made = route(ROUTE, BIAS=False)
    given = {"x": tensor(0), "out": tensor(1), "numel": 4, "start": 0, "eps": 0.5, **changed}
    with pytest.raises(WgslError, match=re.escape(message.format(name=made.name))):
        made.over(1, **{name: value for name, value in given.items() if value is not ...})


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("f32", ("float32", "float16"), ("int32", "uint8", "bool", "Q4_0")),
        ("vec4<f32>", ("float32", "float16"), ("int64",)),
        ("i32", ("int32", "int64"), ("float32", "int8")),
        ("u32", ("uint8", "int8", "bool", "Q4_K"), ("float32", "int32")),
        ("word", ("float32", "float16", "int32", "int64"), ("bool", "F16")),
    ],
)
def test_a_bindings_type_says_what_tensors_it_takes(
    route: Callable[..., Kernel], kind: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    made = route(f"#read x: {kind}")
    for dtype in good:
        made.over(1, x=tensor(3, dtype)).check_types()
    for dtype in bad:
        with pytest.raises(UnsupportedError, match=f"^{re.escape(made.name)} takes .* for x; tensor 3 is {dtype}$"):
            made.over(1, x=tensor(3, dtype)).check_types()


def test_tensors_of_halves_make_another_shader_of_the_same_kernel(route: Callable[..., Kernel]) -> None:
    made = route(ACCESS.format("f32"))
    plain, halves = made.over(1, x=tensor(0), out=tensor(1)), made.over(1, x=tensor(0, "float16"), out=tensor(1))
    assert (plain.halves, halves.halves) == (frozenset(), {"x"})
    assert "f16" not in made.shader(plain.halves).text and "array<f16>" in made.shader(halves.halves).text
    assert made.shader(halves.halves) is made.shader(frozenset({"x"}))


def test_main_is_the_head_of_a_kernel(package: Package) -> None:
    first, *others, end = lines(package("#main $LANES\n}"), LANES=8)
    assert first == "@compute @workgroup_size(8)" and end == "}"
    assert others[0].startswith("fn main(") and others[-1].endswith("lane: u32) {")
    with pytest.raises(WgslError, match=r"main.wgsl:1: write it as #main THREADS"):
        lines(package("#main"))
