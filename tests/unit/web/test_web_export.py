"""An export read back: its dispatches, grids, parameters and SymInts are the planner's, word for word."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schedules import PROGRAMS

from hightide.errors import InputError, UnsupportedError
from hightide.fuse.ragged import RAGGED_DYNAMIC, RAGGED_INPUTS
from hightide.graph.blob import Zeros
from hightide.graph.symbols import Element, element, evaluate
from hightide.graph.values import TensorValue
from hightide.ops.kernel import Tensor
from hightide.planning.levels import graph_inputs
from hightide.planning.planner import Plan, Planner
from hightide.runtime.build import fused
from hightide.runtime.ready_plans import shader_of
from hightide.runtime.session_plan import plan_session
from hightide.runtime.upload import pieces
from hightide.tools.levels.varying import Place, Symbol
from hightide.tools.opened_file import open_file
from hightide.web.export_file import export_model, export_program, program_levels
from hightide.web.folder_writer import WebGraph, web_planner
from hightide.web.replay import ReplayedSession, evaluated, read_export
from hightide.web.session_tables import SharedTables, formula, session_tables, standard_text
from hightide.web.variants import variants
from hightide.web.weight_shards import WeightShards

PROGRAM_NAMES = ["llama_fp16", "llama_8da4w", "qwen3", "two_dims", "slices"]
POSITIONS = (0, 7, 40)
MODELS = Path(__file__).parents[2] / "models"


class Elements(dict[Any, int]):
    """Every element of every input is this number."""

    def __init__(self, value: int) -> None:
        super().__init__()
        self.value = value

    def __missing__(self, key: Any) -> int:
        return self.value


@pytest.mark.parametrize("name", ["llama_gqa", *(pytest.param(name, marks=pytest.mark.slow) for name in PROGRAM_NAMES)])
def test_a_program_is_what_the_planner_made(name: str, tmp_path: Path) -> None:
    export_program(PROGRAMS / f"{name}.pte", tmp_path)
    part = open_file(PROGRAMS / f"{name}.pte", device="cpu").parts[0]
    check(tmp_path, part.graph, part.dynamic, part.names, decoder=False)


@pytest.mark.parametrize(
    "path",
    [
        PROGRAMS / "llama_chunks.pte",
        pytest.param(PROGRAMS / "llama_fp16.pte", marks=pytest.mark.slow),
        pytest.param(MODELS / "lfm2.gguf", marks=pytest.mark.slow),
    ],
    ids=lambda path: path.stem,
)
def test_a_model_is_what_the_planner_made(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr("hightide.web.export_file.WebGraph", lambda *a, **k: made.append(a) or WebGraph(*a, **k))
    manifest = export_model(path, tmp_path, chunk=16)
    assert manifest["model"]["chunk"] == len([d for d in made[0][3] if d[RAGGED_INPUTS.index("wanted")] == (1,)])
    check(tmp_path, made[0][0], RAGGED_DYNAMIC, RAGGED_INPUTS, decoder=True)


def check(folder: Path, graph: Any, dynamic: Any, names: Any, decoder: bool) -> None:
    stream = b"".join(shard.read_bytes() for shard in shards(folder))
    graph = fused(graph)
    for variant, session in zip(variants(), read_export(folder), strict=True):
        assert session.name == variant.name
        planner = web_planner(graph, variant, decoder)
        levels = [[tuple(d) for d in level["dims"]] for level in session.data["levels"]]
        assert levels
        planned = plan_session(planner, graph_inputs(planner.graph, dynamic, names), levels)
        owners: dict[Any, int] = {}  # by buffer: whose it is
        for plan, dims in zip(planned.plans[1:], levels, strict=True):
            for position in POSITIONS:
                check_level(session, planner, plan, dims, position)
            bound = [b for step in plan.steps for b in (*step.dispatch.reads, *step.dispatch.writes)]
            places = [place for one in session.dispatches(dims, Elements(0)) for place in one.places]
            for place, what in zip(places, bound, strict=True):
                root: Any = planner.aliases.root[what.value.id] if isinstance(what, Tensor) else what
                if root in planned.memory.shared:
                    assert place == planned.memory.shared[root]
                elif root in planner.graph.inputs:
                    given = session.data["inputs"][planner.graph.inputs.index(root)]["place"]
                    assert place in (given, given[0])
                else:
                    assert owners.setdefault(place, root) == root
        assert owners
        for buffer, root in owners.items():
            check_constant(session, buffer, planner.graph.values[root], stream)


def check_level(session: ReplayedSession, planner: Planner, plan: Plan, dims: Any, position: int) -> None:
    elements = Elements(position)
    replayed = session.dispatches(dims, elements)
    assert len(replayed) == len(plan.steps)
    for got, step in zip(replayed, plan.steps, strict=True):
        dispatch = step.dispatch
        assert got.text == standard_text(shader_of(dispatch).text)
        words = np.frombuffer(dispatch.kernel.interface.pack(dispatch.params), np.uint32)
        assert got.params == words[: len(got.params)].tolist() and not words[len(got.params) :].any()
        assert got.groups == max(0, evaluate(dispatch.groups, elements))
    slots = sorted(planner.slots, key=planner.slots.__getitem__)
    assert session.symints(dims, elements) == [evaluate(plan.symints.get(id, 0), elements) for id in slots]
    outputs = [plan.dims.get(id, ()) for id in planner.graph.outputs]
    assert [tuple(d) for d in session.level(dims)["outputs"]] == outputs


def check_constant(session: ReplayedSession, buffer: int, value: Any, stream: bytes) -> None:
    """The bytes of a constant are in the stream where its buffer says; zeros are nowhere."""
    place = {number: (at, length) for number, at, length in session.constants}.get(buffer)
    data = bytearray(session.data["buffers"][buffer] if place is None else place[1])
    for offset, words in pieces(value):
        data[offset : offset + words.nbytes] = words.tobytes()
    if place is None:
        assert isinstance(value.constant, Zeros) and not any(data)
    else:
        assert stream[place[0] : place[0] + place[1]] == data


def shards(folder: Path) -> list[Path]:
    manifest = json.loads((folder / "manifest.json").read_text())
    for shard in manifest["weights"]:
        data = (folder / shard["file"]).read_bytes()
        assert len(data) == shard["bytes"] and sha256(data).hexdigest() == shard["sha256"]
    return [folder / shard["file"] for shard in manifest["weights"]]


def test_weights_are_cut_into_shards(tmp_path: Path) -> None:
    graph = open_file(PROGRAMS / "llama_gqa.pte", device="cpu").parts[0].graph
    values = [value for value in graph.values if isinstance(value, TensorValue) and value.constant is not None]
    weights = WeightShards(shard=1 << 12)
    places = [weights.add(value) for value in values]
    made = weights.write(tmp_path)
    assert len(made) > 3 and all(shard["bytes"] <= 1 << 12 for shard in made)
    assert {path.name for path in tmp_path.iterdir()} == {shard["file"] for shard in made}
    stream = b"".join((tmp_path / shard["file"]).read_bytes() for shard in made)
    for value, place in zip(values, places, strict=True):
        if place is not None:
            for offset, words in pieces(value):
                at = place[0] + offset
                assert stream[at : at + words.nbytes] == words.tobytes()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="has other files in it"):
        export_program(PROGRAMS / "llama_static.pte", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    for _ in range(2):  # over an older export
        export_program(PROGRAMS / "llama_static.pte", tmp_path / "site")
    assert len(list((tmp_path / "site").glob("weights-*"))) == 1


def test_a_program_that_python_has_to_help_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"partial\.pte: method forward is not one graph"):
        export_program(PROGRAMS / "partial.pte", tmp_path)


def test_shapes_made_from_values_are_refused(tmp_path: Path) -> None:
    graph = open_file(PROGRAMS / "value_shape.pte", device="cpu").parts[0].graph
    specs = graph_inputs(graph, None, None)
    with pytest.raises(UnsupportedError, match="shapes are made from numbers in its inputs"):
        session_tables(Planner(graph), specs, [[spec.dims for spec in specs]], SharedTables())


def test_levels_that_are_named() -> None:
    symbols = [Symbol("S", 4, 4, (Place(0, 0),)), Symbol("T", 64, 64, (Place(0, 1),))]
    assert len(program_levels(symbols, [])) == 4 * 64
    assert program_levels(symbols, ["S=1..2", "S=2,T=3"]) == [{"S": 1, "T": 64}, {"S": 2, "T": 64}, {"S": 2, "T": 3}]
    for text, message in (
        ("S", "NAME=NUMBER"),
        ("U=1", "what varies: S"),
        ("S=5", "S=5 is no level"),
        ("S=3..2", "no level"),
    ):
        with pytest.raises(InputError, match=message):
            program_levels(symbols, [text])
    many = [Symbol("S", 5000, 5000, (Place(0, 0),))]
    with pytest.raises(InputError, match="name them with --at"):
        program_levels(many, [])


def test_wgsl_is_standard() -> None:
    text = "// a comment\nfn main() { // here\n    let x = subgroupAdd(1u);\n}\n"
    assert standard_text(text) == "enable subgroups;\nfn main() {\nlet x = subgroupAdd(1u);\n}\n"
    assert standard_text("fn main() { let subgroups = 1; }") == "fn main() { let subgroups = 1; }\n"


def test_formulas() -> None:
    for expr in (3, element(0, 2) + 5, (element(1, 0) * 4 + 3) // 16, element(0, 0) * element(0, 1) - 2):
        values = {(0, 0): 7, (0, 1): 3, (0, 2): 11, (1, 0): 29}
        env = {Element(*place): value for place, value in values.items()}
        assert evaluated(formula(expr), values) == evaluate(expr, env)
