"""What failed once, and a short run of cases that are always the same; `make fuzz` runs many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.minimise import FOUND, kept
from fuzz.mutations import case
from fuzz.targets import run
from fuzz.workers import Pool

# As many of each kind as take half a second or so.
SHORT = {
    "pte": 250,
    "graph": 200,
    "ptd": 60,
    "gguf": 40,
    "folder": 60,
    "encoder": 30,
    "encoder_folder": 30,
    "split": 30,
    "adapter": 30,
    "peft": 30,
    "json": 60,
    "sentencepiece": 60,
    "tiktoken": 20,
    "llama2c": 60,
    "template": 60,
    "state": 40,
    "cache": 60,
}


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.z")), ids=lambda path: path.name.removesuffix(".z"))
def test_what_failed_once_is_refused_or_runs(path: Path, tmp_path: Path) -> None:
    assert run(*kept(path), tmp_path) in ("refused", "valid")


@pytest.mark.parametrize("kind", SHORT)
def test_damaged_files_are_refused_or_run(kind: str, tmp_path: Path) -> None:
    for number in range(SHORT[kind]):
        name, data = case(kind, number, "short")
        assert run(kind, name, data, tmp_path) in ("refused", "valid"), f"{kind} case {number} ({name})"


def test_a_case_is_the_same_every_time() -> None:
    assert case("pte", 3, "0") == case("pte", 3, "0") != case("pte", 3, "1")


@pytest.mark.slow
def test_workers_see_no_failure() -> None:
    pool = Pool(2, "workers")
    jobs = [(kind, number) for kind, count in SHORT.items() for number in range(count)]
    assert list(pool.run(jobs, float("inf"))) == []
    assert sum(pool.counts.values()) == len(jobs)


@pytest.mark.slow
@pytest.mark.gpu
def test_workers_on_an_adapter_see_no_failure(device: object) -> None:
    pool = Pool(1, "workers")
    assert list(pool.run([("gpu", number) for number in range(60)], float("inf"))) == []
    assert pool.counts["gpu valid"] > 2 and sum(pool.counts.values()) == 60
