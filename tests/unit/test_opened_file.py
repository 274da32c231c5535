"""Every committed program and model opens for the tools, says what varies, and gives inputs that run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from schedules import INDEX, PROGRAMS, main_method, steps

from hightide import InputError, ProgramError
from hightide.planning.levels import InputSpec
from hightide.tools.levels.varying import Place, dims_at, find_symbols, smaller_sizes
from hightide.tools.opened_file import OpenedFile, Part, open_file, parse_at

MODELS = sorted((Path(__file__).parents[1] / "models").glob("*.gguf"))
SMALL = [path for path in MODELS if path.stem != "gemma3_27b"]  # which has 62 layers
METHODS = [(name, method) for name, entry in INDEX.items() for method in dict.fromkeys(entry["steps"])]
# What the exporter was told that varies (make_programs.py), by program; an LLM with a cache has S and pos.
VARIES = {
    "bert": {"S": 4, "T": 33},
    "cond": {"S": 33},
    "counter": {"S": 33},
    "gpt2": {"S": 40},
    "llama_nokv": {"S": 47},
    "llama_static": {"pos": 19},
    "mobilenet_v3": {"S": 4, "T": 48, "U": 48},
    "partial": {"S": 33},
    "resnet18": {"S": 4, "T": 64, "U": 64},
    "symints": {"S": 20, "T": 9},
    "symints_between": {"S": 4, "T": 33},
    "two_dims": {"S": 4, "T": 33},
    "value_shape": {"S": 33, "in1": 33},
    "vit": {"S": 5},
}


@pytest.mark.parametrize("name", INDEX)
def test_what_varies(name: str) -> None:
    entry = INDEX[name]
    parts = open_file(PROGRAMS / f"{name}.pte", method=main_method(name)).parts
    if name == "wide":
        assert parts == []
        return
    if name == "slices":  # its graph takes other widths of in1 as well, though the exporter was not told so
        assert parts[0].symbols == {"S": 32, "T": 9, "U": 12}
        return
    cached = {"S": entry.get("max_s"), "pos": entry.get("context", 0) - 1}
    for part in parts:
        if name in VARIES or "vocab" in entry:
            assert part.symbols == VARIES.get(name, cached)


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_every_step_of_a_schedule_is_a_level(name: str, method: str) -> None:
    """The symbols explain the dims of every step: dims that vary together are one symbol, and none is missing."""
    parts = open_file(PROGRAMS / f"{name}.pte", method=method).parts
    if not parts:
        return
    source = parts[0].source
    assert hasattr(source, "specs")
    for step_method, inputs, _ in steps(name):
        if step_method != method:
            continue
        level = {}
        for symbol in source.symbols:
            if symbol.places:
                place = symbol.places[0]
                level[symbol.name] = inputs[place.input].shape[place.axis]
            else:
                assert symbol.element is not None
                level[symbol.name] = int(inputs[symbol.element[0]].reshape(-1)[symbol.element[1]])
            assert 0 <= level[symbol.name] <= symbol.most
        assert dims_at(source.specs, source.symbols, level) == [array.shape for array in inputs]


@pytest.mark.parametrize("name", INDEX)
def test_inputs_run_at_the_max_and_at_small_levels(name: str) -> None:
    for part in open_file(PROGRAMS / f"{name}.pte", method=main_method(name)).parts:
        session = part.session("cpu")
        for level in ({}, {s: min(most, 4) for s, most in part.symbols.items()}):
            given = part.inputs_at(level)
            assert all(np.isfinite(out).all() for out in session.run(given) if out.dtype.kind == "f")
            dims, env = part.level_at(level)
            planned = session.planner.plan(dims, env)
            assert [planned.dims[id] for id in session.graph.inputs if id in planned.dims] == [
                array.shape for array, id in zip(given, session.graph.inputs, strict=True) if id in planned.dims
            ]


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_models_open(path: Path) -> None:
    opened = open_file(path, context=64)
    (part,) = opened.parts
    assert part.symbols == {"S": 64, "pos": 63, "keep": 16}
    tokens, position, keep, settings = part.inputs_at({"S": 3, "pos": 40, "keep": 2})
    assert tokens.shape == (1, 3) and position == 40 and keep == 2 and not settings.any()
    logits, ids = part.session("cpu").run([tokens, position, keep, settings])
    assert logits.shape[1] == 2 and ids.shape == (1, 2)


def llama() -> Part:
    return open_file(PROGRAMS / "llama_gqa.pte").parts[0]


def test_inputs_differ_by_seed_and_agree_by_seed() -> None:
    part = llama()
    first, again, other = (part.inputs_at({"S": 17}, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.min() >= 0 and first.max() <= 159


def test_tokens_are_taken_as_given() -> None:
    tokens, position = llama().inputs_at({"S": 5, "pos": 2}, tokens=[7, 8, 9])
    assert tokens.tolist() == [[7, 8, 9, 7, 8]] and position.tolist() == [2]
    with pytest.raises(InputError, match="token id 160"):
        llama().inputs_at({"S": 1}, tokens=[160])
    with pytest.raises(InputError, match="takes no tokens"):
        open_file(PROGRAMS / "two_dims.pte").parts[0].inputs_at({}, tokens=[1])


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ({"T": 1}, r"forward has no T; what varies in it: S \(up to 47\), pos \(up to 95\)"),
        ({"S": 48}, "S is 48; in forward it is 0 to 47"),
        ({"S": 0}, "S is 0; forward takes at least 1"),
        ({"pos": -1}, "pos is -1"),
        ({"S": 47, "pos": 95}, "context"),
    ],
)
def test_levels_that_cannot_be(level: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        llama().inputs_at(level)


def test_a_part_of_several_gets_what_the_parts_before_give() -> None:
    opened = open_file(PROGRAMS / "llama_nokv.pte", whole=False)
    assert [part.name for part in opened.parts] == [f"forward/{n}" for n in range(9)]
    hidden, length, *_ = opened.parts[1].inputs_at({"S": 5})
    assert hidden.shape == (1, 5, 64) and length == 5 and hidden.any()


def test_levels_as_text() -> None:
    assert parse_at("S=17, pos=40") == {"S": 17, "pos": 40}
    assert parse_at("") == {}
    for text in ("S", "S=", "S=a", "=3", "S=1.5", "S==2"):
        with pytest.raises(InputError, match="is not NAME=NUMBER"):
            parse_at(text)
    with pytest.raises(InputError, match="twice"):
        parse_at("S=1,S=2")


def test_what_is_not_a_program(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes((PROGRAMS / "llama_gqa.pte").read_bytes()[:5000])
    with pytest.raises(ProgramError):
        open_file(broken)
    with pytest.raises(InputError, match="no method 'backward'"):
        open_file(PROGRAMS / "llama_gqa.pte", method="backward")
    with pytest.raises(InputError, match="has a context of 256 tokens; it cannot use 257"):
        open_file(MODELS[0], context=257)


class Ruled:
    """A space with a rule in place of a graph."""

    def __init__(self, dims: list[tuple[int, ...]], rule: str) -> None:
        self.specs = [InputSpec(f"in{n}", d, "float32", True) for n, d in enumerate(dims)]
        self.rule = rule

    def runs(self, dims: list[tuple[int, ...]], values: dict[tuple[int, int], int]) -> bool:
        return bool(eval(self.rule, {"d": dims}))

    def elements(self) -> dict[tuple[int, int], bool]:
        return {}


@pytest.mark.parametrize(
    ("dims", "rule", "places"),
    [
        ([(8, 16), (8, 16)], "d[0][0] == d[1][0] and d[0][1] == d[1][1] == 16", [[(0, 0), (1, 0)]]),
        ([(16, 16), (16,)], "d[0][0] == d[1][0] and d[0][1] == 16", [[(0, 0), (1, 0)]]),
        ([(12,), (12,)], "d[0][0] % 4 == 0 and d[1][0] == 12", [[(0, 0)]]),
        ([(8,), (24,)], "d[1][0] == 3 * d[0][0]", [[(0, 0), (1, 0, 3)]]),
        ([(8,), (9,)], "d[1][0] == d[0][0] + 1", [[(0, 0), (1, 0, 1, 1)]]),
        ([(8, 9)], "True", [[(0, 0)], [(0, 1)]]),
        ([(8, 9)], "d[0] == (8, 9)", []),
    ],
)
def test_dims_that_vary_together(dims: list[tuple[int, ...]], rule: str, places: list[list[tuple[int, ...]]]) -> None:
    found = find_symbols(Ruled(dims, rule))  # type: ignore[arg-type]
    assert [list(symbol.places) for symbol in found] == [[Place(*place) for place in group] for group in places]


def test_smaller_sizes_are_smaller() -> None:
    for most in range(2, 300):
        sizes = smaller_sizes(most)
        assert sizes and all(0 < size < most for size in sizes) and (1 not in sizes or most == 2)


def test_a_subject_finds_its_tokenizer() -> None:
    opened: OpenedFile = open_file(MODELS[0])
    assert opened.tokenizer is None  # the small models have none
    assert opened.program is None and opened.gguf is not None
