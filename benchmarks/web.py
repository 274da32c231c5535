"""hightide, transformers.js and wllama in one headless Chromium: a prompt of 128 tokens, and a token after it.

    python benchmarks/web.py [MODEL] [--rounds N]

All engines answer the same prompts of random words, in turns, so that a busy machine slows them alike: trust the
ratios. They are installed by `python benchmarks/compare.py --setup web`; transformers.js also needs `--setup
onnxruntime`, whose packages make an ONNX model of the GGUF file. Its weights are quantized anew, all of them to 4 bits
without minima (the file's output matrix has 8), so it reads less and its answers may differ. wllama reads the file
itself; it has a row for the CPU besides.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from peerbench.browser import Answer, Browser, PageEngine, Prompt, Visit, launched
from peerbench.peer import KINDS, SCRIPTS, Kind, PeerError, interpreter, packages

from hightide.cli.bench import print_table
from hightide.formats.gguf import read_gguf
from hightide.llm.default_model import default_model
from hightide.llm.tokenizer import Tokenizer
from hightide.tools.bench.bench_tables import Table
from hightide.tools.bench.samples import TimeSample
from hightide.web.export_file import export_model

PROMPT, ANSWER, ROUNDS = 128, 9, 3  # tokens, tokens, rounds
SHORT = 8  # tokens of the first prompt of a second visit
CHECKED = 4  # ids of the first answer, which are compared
PLAIN = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. "
CONTEXT = 512  # of wllama, which takes memory for all of it


class Prompts:
    """The same prompt as ids and as text: random words that are one token each, or plain sentences."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._rng = tokenizer, np.random.default_rng(0)
        self._words = [n for n in range(tokenizer.vocab_size) if _is_word(tokenizer.decode([n]))]

    def __call__(self, length: int) -> Prompt:
        while True:
            tokens = self._rng.choice(self._words, length).tolist()
            text = self._tokenizer.decode(tokens)
            if self._tokenizer.encode(text) == tokens:
                return Prompt(tokens, text)

    def plain(self, length: int) -> Prompt:
        """Sentences again and again, so that every engine must continue them alike, whatever its rounding."""
        tokens = self._tokenizer.encode(PLAIN * length)[:length]
        return Prompt(tokens, self._tokenizer.decode(tokens))


def _is_word(text: str) -> bool:
    return text.startswith(" ") and len(text) > 2 and text[1:].isascii() and text[1:].isalpha() and text[1:].islower()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    model = options.model or default_model()
    prompts = Prompts(Tokenizer.from_gguf(read_gguf(model).metadata))
    with tempfile.TemporaryDirectory() as folder:
        peers, folders = prepare_peers(model, Path(folder))
        export_model(model, Path(folder) / "hightide")
        engines = [PageEngine("hightide", "hightide.mjs", {"folder": "/hightide/"}), *peers]
        with launched({"hightide": Path(folder) / "hightide", **folders}) as browser:
            adapter = browser.adapter()
            lacks = "" if "shader-f16" in adapter["features"] else "; it lacks shader-f16"
            print(f"{model.name} in Chromium {browser.version} on {adapter['name']}{lacks}", flush=True)
            visits = open_all(browser, engines, prompts)
            answers = answer_in_turns(visits, prompts, options.rounds)
            report(visits, answers, options.rounds)
            second_visits(visits, prompts)


def prepare_peers(model: Path, folder: Path) -> tuple[list[PageEngine], dict[str, Path]]:
    """The peers that are installed, and the folders that their pages read."""
    engines: list[PageEngine] = []
    folders = {"models": model.parent}
    try:
        folders["packages"] = packages(kind_of("transformers.js"))
        options = {"packages": "/packages/", "model": f"/models/{model.name}", "context": CONTEXT}
        needs = " (llama.cpp's WebGPU backend asks for shader-f16)"
        script = kind_of("wllama").script
        engines.append(PageEngine("wllama", script, {**options, "layers": 999}, "WebGPU", lag=1, reason=needs))
        engines.append(PageEngine("wllama, CPU", script, {**options, "layers": 0}, "CPU", lag=1))
        make_onnx(model, folder / "onnx")
        folders["onnx"] = folder / "onnx"
        transformers = {"packages": "/packages/", "folder": "onnx"}
        engines.insert(0, PageEngine("transformers.js", kind_of("transformers.js").script, transformers))
    except PeerError as error:
        print(error)
    return engines, folders


def make_onnx(model: Path, folder: Path) -> None:
    """A folder that transformers.js opens."""
    try:
        python = interpreter(kind_of("ONNX Runtime WebGPU"))
    except PeerError:
        needed = "python benchmarks/compare.py --setup onnxruntime"
        raise PeerError(f"transformers.js is left out: its model is made by what `{needed}` installs") from None
    command = [python, str(SCRIPTS / "onnx_folder.py"), str(model), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["its model could not be made"]
        raise PeerError(f"transformers.js is left out: {said[-1][:300]}")


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def open_all(browser: Browser, engines: Sequence[PageEngine], prompts: Prompts) -> list[Visit]:
    """Every engine, with its kernels compiled, and what it makes of a text that goes on as it began."""
    prompt, visits, ids = prompts.plain(PROMPT), list[Visit](), list[int]()
    for engine in engines:
        try:
            visit = Visit(browser, engine)
            made = visit.answer(prompt, CHECKED).ids
        except PeerError as error:
            if not visits:
                raise  # hightide itself
            print(f"  {error}", flush=True)
            continue
        ids = ids or made
        about = ", ".join(f"{name} {value}" for name, value in visit.about.items() if value)
        same = "" if made == ids else f"; it continues a plain text with {made}, hightide with {ids}"
        print(f"  {engine.name}: {about}{same}", flush=True)
        visits.append(visit)
    return visits


def answer_in_turns(visits: list[Visit], prompts: Prompts, rounds: int) -> dict[str, list[Answer]]:
    """The answers of each engine; one that fails is closed and left out."""
    answers: dict[str, list[Answer]] = {visit.engine.name: [] for visit in visits}
    for _ in range(rounds):
        prompt = prompts(PROMPT)
        for visit in list(visits):
            try:
                answers[visit.engine.name].append(visit.answer(prompt, ANSWER))
            except PeerError as error:
                print(error, flush=True)
                visit.close()
                visits.remove(visit)
    return answers


def report(visits: Sequence[Visit], answers: dict[str, list[Answer]], rounds: int) -> None:
    own = answers[visits[0].engine.name]
    rows = []
    for visit in visits:
        made = answers[visit.engine.name]
        cells = [visit.engine.name]
        for work in (prefill_samples, decode_samples):
            ours, theirs = medians(work(own)), medians(work(made))
            cells += [f"{theirs.wall_ms:.0f}", f"{theirs.wall_ms / ours.wall_ms:.2f}"]
            cells += [f"{theirs.cpu_ms:.0f}", f"{theirs.cpu_ms / ours.cpu_ms:.2f}"]
        rows.append(tuple(cells))
    columns = ("engine", "prefill ms", "times", "CPU ms", "times", "a token ms", "times", "CPU ms", "times")
    title = f"{PROMPT} tokens in, {ANSWER} out, medians of {rounds} rounds; times: as long as hightide"
    print_table(Table(title, columns, rows))
    if host := [ms for answer in own for ms in answer.host_ms]:
        print(f"hightide: {statistics.median(host):.2f} ms of JavaScript for a decode step", flush=True)


def prefill_samples(answers: Sequence[Answer]) -> list[TimeSample]:
    return [answer.first for answer in answers]


def decode_samples(answers: Sequence[Answer]) -> list[TimeSample]:
    return [medians(answer.tokens) for answer in answers]


def medians(samples: Sequence[TimeSample]) -> TimeSample:
    cpu, wall = ([getattr(sample, name) for sample in samples] for name in ("cpu_ms", "wall_ms"))
    return TimeSample(statistics.median(cpu), statistics.median(wall))


def second_visits(visits: Sequence[Visit], prompts: Prompts) -> None:
    prompt, rows = prompts(SHORT), []
    for visit in visits:
        try:
            sample = visit.again(prompt)
        except PeerError as error:
            print(error)
            continue
        rows.append((visit.engine.name, f"{sample.wall_ms / 1e3:.1f}", f"{sample.cpu_ms / 1e3:.1f}"))
    title = f"From a second visit to the first token after a prompt of {SHORT}"
    print_table(Table(title, ("engine", "s", "CPU s"), rows))


if __name__ == "__main__":
    main()
