"""Language models in Chromium: the same ids as in Python, whatever goes wrong on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from schedules import PROGRAMS
from scripted_models import scripted_model
from smollm2 import ORACLE, smollm2_file
from web_engine import HALVES, Engine, engine_of

from hightide import LLM
from hightide.web.export_file import export_model
from hightide.web.replay import read_export

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("webgpu")]
SCRIPTS = {"hello": ["Hello", " **reader**", "."], "long": ["so", " on~"], "wide": ["\udcc3", "\udca9", "t", "é"]}
MODELS = Path(__file__).parents[1] / "models"
PROMPT = [1, 5, 9, 2, 5, 9, 2, 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("llama")
    export_model(PROGRAMS / "llama_gqa.pte", made)
    return made


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scripted")
    export_model(scripted_model(tmp_path_factory.mktemp("model") / "scripted.gguf", SCRIPTS), made)
    return made


@pytest.fixture(scope="module")
def engine(browser: Any, folder: Path) -> Iterator[Engine]:
    with engine_of(browser, folder) as engine:
        engine.load()
        yield engine


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(PROGRAMS / "llama_gqa.pte", device="cpu") as llm:
        yield llm


def ids_of(llm: LLM, prompt: Any, **options: Any) -> list[int]:
    llm.reset()
    return [piece.token for piece in llm.stream(prompt, **options) if piece.token >= 0]


def test_greedy_ids(engine: Engine, llm: LLM) -> None:
    answer = engine.generate(PROMPT, {"maxTokens": 24})
    assert answer["ids"] == ids_of(llm, PROMPT, max_tokens=24)
    assert answer["finishReason"] == "length" and answer["stats"]["newTokens"] == 24


def test_a_seed_gives_the_ids_of_python(engine: Engine, llm: LLM) -> None:
    for seed in (0, 3, 2**70):
        options = {"temperature": 0.9, "topK": 20, "topP": 0.9, "minP": 0.01, "maxTokens": 20}
        given = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "max_tokens": 20}
        if seed < 2**53:
            assert engine.generate(PROMPT, {**options, "seed": seed})["ids"] == ids_of(llm, PROMPT, **given, seed=seed)


def test_speculation_changes_nothing(engine: Engine) -> None:
    usual = engine.generate(PROMPT, {"maxTokens": 24})
    drafted = engine.generate(PROMPT, {"maxTokens": 24, "speculate": True})
    assert drafted["ids"] == usual["ids"]


def test_a_prompt_in_chunks(engine: Engine, llm: LLM) -> None:
    engine.page.evaluate("() => window.engine.reset()")
    prompt = [n * 7 % 90 for n in range(60)]  # the program takes 47 at once
    answer = engine.generate(prompt, {"maxTokens": 8})
    assert answer["ids"] == ids_of(llm, prompt, max_tokens=8)
    assert answer["stats"]["reusedTokens"] == 0


def test_the_conversation_is_reused(engine: Engine, llm: LLM) -> None:
    first = engine.generate(PROMPT, {"maxTokens": 6})
    longer = [*PROMPT, *first["ids"][:4], (first["ids"][4] + 1) % 90, 4]
    answer = engine.generate(longer, {"maxTokens": 6})
    assert answer["stats"]["reusedTokens"] == len(PROMPT) + 4
    assert answer["ids"] == ids_of(llm, longer, max_tokens=6)


def test_stopping_and_going_on(engine: Engine, llm: LLM) -> None:
    stopped = engine.generate(PROMPT, {"maxTokens": 30}, stop_after=3)
    assert len(stopped["ids"]) == 3
    assert engine.generate(PROMPT, {"maxTokens": 12})["ids"] == ids_of(llm, PROMPT, max_tokens=12)


def test_the_context_ends(engine: Engine, llm: LLM) -> None:
    context = llm.decoder.context
    prompt = [n % 90 for n in range(context - 5)]
    answer = engine.generate(prompt, {})
    assert answer["finishReason"] == "context"
    assert answer["ids"] == ids_of(llm, prompt)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([100_000], {}, "outside the vocabulary"),
        ("text", {}, "no tokenizer"),
        (PROMPT, {"temperature": -1}, "temperature must be"),
        (PROMPT, {"stop": [""]}, "none of them empty"),
    ],
)
def test_bad_prompts(engine: Engine, prompt: Any, options: Any, message: str) -> None:
    with pytest.raises(Exception, match=f"InputError.*{message}"):
        engine.generate(prompt, options)


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "qwen3", "phi3", "mistral3", "gpt2", "command_r", "gpt_oss"])
def test_other_architectures(name: str, browser: Any, tmp_path: Path) -> None:
    file = MODELS / f"{name}.gguf"
    export_model(file, tmp_path)
    with engine_of(browser, tmp_path) as engine, LLM(file, device="cpu") as llm:
        assert engine.load()["leftOut"] == []
        assert engine.generate(PROMPT, {"maxTokens": 16})["ids"] == ids_of(llm, PROMPT, max_tokens=16)


@pytest.mark.parametrize("plan", HALVES)
@pytest.mark.parametrize("name", ["gemma3", "qwen3", "gpt_oss"])
def test_architectures_with_caches_of_halves(name: str, plan: str, browser_with_halves: Any, tmp_path: Path) -> None:
    file = MODELS / f"{name}.gguf"
    export_model(file, tmp_path)
    with engine_of(browser_with_halves, tmp_path) as engine, LLM(file, device="cpu") as llm:
        about = engine.load(variant=plan)
        assert (about["plan"], about["leftOut"]) == (plan, [])
        assert engine.generate(PROMPT, {"maxTokens": 16})["ids"] == ids_of(llm, PROMPT, max_tokens=16)


# ---- faults


def test_a_lost_device_in_mid_answer(browser: Any, folder: Path, llm: LLM) -> None:
    with engine_of(browser, folder) as engine:
        engine.load()
        answer = engine.generate(PROMPT, {"maxTokens": 20, "temperature": 0.8, "seed": 5}, lose_after=7)
        assert answer["ids"] == ids_of(llm, PROMPT, max_tokens=20, temperature=0.8, seed=5)


def test_a_wrong_kernel_is_found_before_the_download(browser: Any, folder: Path, llm: LLM) -> None:
    first, *_, last = read_export(folder)
    kernels = first.kernels
    names, others = ({kernels[group[0]]["name"] for group in plan.data["groups"]} for plan in (first, last))
    found = (kernels[name] for name in kernels if kernels[name]["name"] in names - others)
    wrong = next(kernel["name"] for kernel in found if "total0 += " in kernel["text"])
    text = b"const { text: code, name: label } = this.kernels[name];"
    planted = (
        b"let { text: code, name: label } = this.kernels[name];"
        b'if (label === "%s") code = code.replace("total0 += ", "total0 -= ");'
    )
    with engine_of(browser, folder) as engine:
        engine.host.changes["device.js"] = lambda data: data.replace(text, planted % wrong.encode())
        about = engine.load()
        assert about["plan"] != first.name and wrong in " ".join(about["leftOut"])
        assert engine.generate(PROMPT, {"maxTokens": 8})["ids"] == ids_of(llm, PROMPT, max_tokens=8)


def test_the_next_visit_downloads_and_checks_nothing(browser: Any, folder: Path) -> None:
    with engine_of(browser, folder) as engine:
        first = engine.load()
        assert first["downloaded"] > 80_000 and "checks" in first["stages"]
        asked = len(engine.host.asked)
        second = engine.load()
        assert second["downloaded"] == 0 and "checks" not in second["stages"]  # the kernels are known to be right
        assert not any(name.startswith("weights") for name, _ in engine.host.asked[asked:])


def test_a_download_that_is_cut_goes_on_where_it_was(browser: Any, folder: Path, llm: LLM) -> None:
    with engine_of(browser, folder) as engine:
        engine.host.faults["weights"] = lambda data: data[: len(data) // 2]
        engine.load()
        ranges = [given for name, given in engine.host.asked if name.startswith("weights")]
        assert len(ranges) == 2 and ranges[0] == "" and ranges[1].startswith("bytes=")
        assert engine.generate(PROMPT, {"maxTokens": 4})["ids"] == ids_of(llm, PROMPT, max_tokens=4)


def test_a_flipped_bit_is_downloaded_again(browser: Any, folder: Path, llm: LLM) -> None:
    with engine_of(browser, folder) as engine:
        engine.host.faults["weights"] = lambda data: bytes([data[0] ^ 1]) + data[1:]
        engine.load()
        assert sum(name.startswith("weights") for name, _ in engine.host.asked) == 2
        assert engine.generate(PROMPT, {"maxTokens": 4})["ids"] == ids_of(llm, PROMPT, max_tokens=4)


def test_a_file_that_stays_wrong_is_refused(browser: Any, folder: Path) -> None:
    with engine_of(browser, folder) as engine:
        name = next(path.name for path in folder.glob("weights-*"))
        engine.host.changes[name] = lambda data: bytes([data[0] ^ 1]) + data[1:]
        with pytest.raises(Exception, match=r"DownloadError: weights-\w+\.bin is not what the manifest says"):
            engine.load()


def test_a_server_that_is_gone(browser: Any, folder: Path) -> None:
    with engine_of(browser, folder) as engine:
        engine.host.refused["manifest.json"] = 503
        with pytest.raises(Exception, match=r"DownloadError: manifest\.json could not be fetched: the server said 503"):
            engine.load()
        engine.host.down = True
        with pytest.raises(Exception, match="the engine failed"):
            engine.load()


def test_no_storage(browser: Any, folder: Path, llm: LLM) -> None:
    refuse = b"navigator.storage.getDirectory = () => Promise.reject(new Error('no'));\n"
    with engine_of(browser, folder) as engine:
        engine.host.changes["worker.js"] = lambda data: refuse + data
        assert "the browser allows no storage here" in engine.load()["notes"][0]
        assert engine.generate(PROMPT, {"maxTokens": 4})["ids"] == ids_of(llm, PROMPT, max_tokens=4)


def test_a_full_disk(browser: Any, folder: Path) -> None:
    refuse = b"""FileSystemFileHandle.prototype.createWritable = async () => {
        throw new DOMException("full", "QuotaExceededError");
    };
    """
    with engine_of(browser, folder) as engine:
        engine.host.changes["worker.js"] = lambda data: refuse + data
        assert "the disk is full" in engine.load()["notes"][0]


# ---- text


def test_text_of_an_answer(browser: Any, scripted: Path) -> None:
    with engine_of(browser, scripted) as engine:
        engine.load()
        hello = engine.generate([{"role": "user", "content": "<|hello|>"}], {})
        assert (hello["text"], hello["finishReason"]) == ("Hello **reader**.", "stop")
        wide = engine.generate([{"role": "user", "content": "<|wide|>"}], {})
        assert wide["text"] == "été"
        cut = engine.generate([{"role": "user", "content": "<|long|>"}], {"stop": ["n~ o"], "maxTokens": 20})
        assert cut["text"] == "so o" and cut["finishReason"] == "stop"


# ---- SmolLM2


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("smollm2")
    file = smollm2_file()
    export_model(file, made)
    size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    assert size < 1.05 * Path(file).stat().st_size
    return made


def check_oracle(engine: Engine) -> None:
    for run in json.loads(ORACLE.read_text())["runs"]:
        answer = engine.generate(run["prompt_ids"], {"maxTokens": len(run["new_ids"]), "ignoreEnd": True})
        assert answer["ids"] == run["new_ids"], run["name"]


def test_the_oracle_of_smollm2(browser: Any, smollm2: Path) -> None:
    with engine_of(browser, smollm2) as engine:
        engine.load()
        check_oracle(engine)


def test_the_oracle_of_smollm2_with_halves(browser_with_halves: Any, smollm2: Path) -> None:
    with engine_of(browser_with_halves, smollm2) as engine:
        assert engine.load(variant=HALVES[0])["leftOut"] == []
        check_oracle(engine)
