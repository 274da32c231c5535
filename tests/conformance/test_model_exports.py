"""Whole models of many kinds from the real exporter, at every live size of their schedules, whole and split.

Some small ones are in `model_exports`. All of them are exported here, into a temporary folder, where the `export` extra
is installed; `HIGHTIDE_MODEL_EXPORTS` names a folder of earlier ones. `docs/exports.md` has a row for each.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from export_table import COLUMNS, errors, facts, is_expected, is_right, page, ran
from exporting import Exported

from hightide.gpu.device import Device

pytestmark = pytest.mark.filterwarnings("ignore:method .* runs outside its delegates")
KEPT = Path(__file__).parent / "model_exports"
INDEX = json.loads((KEPT / "index.json").read_text())
PAGE = Path(__file__).parents[2] / "docs" / "exports.md"
EXPORTS = Exported("model_exports.py", "HIGHTIDE_MODEL_EXPORTS")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return EXPORTS.folder(tmp_path_factory)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "split"])
@pytest.mark.parametrize("name", INDEX)
def test_kept_program_at_every_size(name: str, whole: bool, device: Device) -> None:
    found = errors(KEPT, name, whole)
    assert len(found) > 4 and is_right(found, INDEX[name]["rounded"]), found


@pytest.mark.parametrize("name", INDEX)
def test_kept_program_on_numpy(name: str) -> None:
    assert is_right(errors(KEPT, name, whole=True, device="cpu"), INDEX[name]["rounded"])


@pytest.mark.parametrize("name", INDEX)
def test_its_rows_in_the_docs_are_true(name: str) -> None:
    known = facts(KEPT / f"{name}.pte")
    row, ops = rows()[name], rows()[f"{name} ops"]
    given = dict(zip(COLUMNS.strip("| ").split(" | "), row, strict=True))
    assert [given[column] for column in ("live", "split", "graphs", "dispatches", "on the host")] == [
        known.live,
        known.split,
        known.graphs,
        known.dispatches,
        known.host,
    ]
    assert ops == [name, known.ops]


@cache
def rows() -> dict[str, list[str]]:
    """The rows of the page's tables by name; those of the last table as `<name> ops`."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        if line.startswith("| "):
            name = cells[0].rstrip("\\*")
            found[f"{name} ops" if name in found else name] = cells
    return found


def test_a_page_has_what_is_right_refused_and_wrong(tmp_path: Path) -> None:
    name = next(iter(INDEX))
    (tmp_path / f"{name}.pte").write_bytes((KEPT / f"{name}.pte").read_bytes())
    index = {name: {**INDEX[name], "rounded": False}, "other": {**INDEX[name], "fails": "no | such thing"}}
    (tmp_path / "index.json").write_text(json.dumps(index))
    text = page(tmp_path, {name: {True: [1e-6, 3e-5], False: "why"}})
    assert "0 of 1 programs are right" in text and "| 3.0e-5 | why |" in text
    assert "`no / such thing`" in text and "What hightide refuses" not in text
    text = page(tmp_path, {name: {True: "why", False: "why"}})
    assert "What hightide refuses" in text and f"| {name} | {INDEX[name]['about']} |" in text and "`why`" in text


def test_a_refusal_must_be_the_one_that_is_expected() -> None:
    right, refused = {"rounded": False}, {"rounded": False, "refused": "does not say"}
    assert is_expected(right, {True: [1e-6], False: [1e-6]}) and not is_expected(right, {True: [1e-6], False: "why"})
    assert is_expected(refused, {True: "it does not say which", False: "it does not say which"})
    assert not is_expected(refused, {True: "it does not say which", False: "why"})
    assert not is_expected(refused, {True: [1e-6], False: [1e-6]})  # it runs now: the entry is to be taken out


@pytest.mark.slow
@EXPORTS.needed
def test_every_program_at_every_size(exports: Path, device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    index = json.loads((exports / "index.json").read_text())
    made = [name for name, entry in index.items() if "fails" not in entry]
    found = {name: ran(exports, name) for name in made}
    wrong = {name: each for name, each in found.items() if not is_expected(index[name], each)}
    refused = sum("refused" in index[name] for name in made if name not in wrong)
    with capsys.disabled():
        agree = f"{len(made) - len(wrong) - refused} of {len(made)} programs agree, {refused} are refused as expected"
        print(f"\n{agree}; {len(index) - len(made)} not exported")
    assert made and not wrong, "\n".join(f"{name}: {each}" for name, each in wrong.items())
