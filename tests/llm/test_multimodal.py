"""Programs that see and hear, from the real exporter, through `LLM`, `Engine`, the command line and the server.

What they must answer is the eager model's, in float32: see conformance/multimodal.py.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_vocabulary import PARTS, SIZE, tokenizer_file
from running_server import running
from schedules import PROGRAMS, error_of_range
from spoken import wav

import hightide
from hightide import Audio, Image, InputError, UnsupportedError
from hightide.gpu import device as devices
from hightide.llm.batcher import Batcher
from hightide.llm.decoder import RaggedDecoder
from hightide.llm.generation import Generation
from hightide.llm.media import Media
from hightide.llm.options import GenerationOptions
from hightide.llm.page_pool import PagedSequence
from hightide.llm.taking_turns import EmbeddingPlace, RereadPlace, TurnsDecoder
from hightide.pte.program import load
from hightide.runtime.gpu_session import GpuSession

NAMES = ["llava", "voxtral"]
pytestmark = pytest.mark.filterwarnings("ignore:voxtral.pte serves its sequences in turns")


class Known:
    """A prompt with an image or audio in its midst, and the eager model's answer."""

    def __init__(self, name: str) -> None:
        with np.load(PROGRAMS / f"{name}_answer.npz") as arrays:
            self.shown, self.rows = arrays["shown"], arrays["rows"]
            self.before, self.after = arrays["before"].tolist(), arrays["after"].tolist()
            self.ids, self.logits = arrays["ids"].tolist(), arrays["logits"]
        self.part: Any = Image(self.shown) if name == "llava" else Audio(self.shown, 16000)

    @property
    def prompt(self) -> list[Any]:
        return [*self.before, self.part, *self.after]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_file(tmp_path_factory.mktemp("tokenizer"), PARTS)


def opened(name: str, **options: Any) -> hightide.LLM:
    return hightide.LLM(PROGRAMS / f"{name}.pte", **options)


def test_the_answer_is_the_eager_models(name: str, where: str | None) -> None:
    known = Known(name)
    with opened(name, device=where) as llm:
        answer = llm.generate(known.prompt, max_tokens=len(known.ids), ignore_eos=True)
        assert answer.tokens == known.ids
        assert answer.stats.prompt_tokens == len(known.before) + len(known.rows) + len(known.after)
        prompt = llm.encode(known.prompt)
        straight, errors, at = llm.straight(), [], 0
        most = llm.decoder.max_rows
        for tokens, want in zip([prompt, *([id] for id in known.ids)], known.logits, strict=False):
            for part in (tokens[first : first + most] for first in range(0, len(tokens), most)):
                step = straight.collect(straight.launch(part, at, logits=True))
                at += len(part)
            assert step.logits is not None
            errors.append(error_of_range(step.logits[-1], want))
        assert len(errors) == len(known.ids) and max(errors) < 2e-5, errors


def test_methods_in_several_parts_are_called_one_by_one(name: str) -> None:
    """Embeddings then pass the host; the answer is the same."""
    known = Known(name)
    with load(PROGRAMS / f"{name}.pte", device="cpu") as program:
        media = Media(program, SIZE, known.rows.shape[1])
        parts = EmbeddingPlace(program.method("token_embedding"), program.method("text_decoder"), media)
        place = RereadPlace(parts, rows=39)
        decoder = TurnsDecoder(place, context=80, sequences=2, rows=39, keep=1, vocab=SIZE, device="NumPy", media=media)
        medium = media.take(known.part)
        prompt = [*known.before, *medium.ids, *known.after]
        batcher = Batcher(decoder, max_sequences=2)
        options = GenerationOptions(max_tokens=len(known.ids))
        answers = [Generation(decoder, PagedSequence(batcher.pool), ids, options, (), None) for ids in (prompt, [5, 6])]
        answers[0].media = [medium]
        for answer in answers:
            batcher.add(answer)
        while batcher.busy:
            batcher.step()
        assert answers[0].tokens[len(prompt) :] == known.ids and len(answers[1].tokens) == 2 + len(known.ids)


def test_another_image_gives_another_answer(where: str | None) -> None:
    known = Known("llava")
    with opened("llava", device=where) as llm:
        other = Image(255 - known.shown)
        answer = llm.generate([*known.before, other, *known.after], max_tokens=12, ignore_eos=True)
        assert answer.tokens != known.ids
        again = llm.generate(known.prompt, max_tokens=12, ignore_eos=True)
        assert again.tokens == known.ids and again.stats.reused_tokens == len(known.before)


def test_a_prompt_is_read_in_chunks_of_any_length(where: str | None) -> None:
    """More rows than a call takes: two images, and text around them."""
    known = Known("llava")
    with opened("llava", device=where) as llm:
        text = [5, 6, 7]
        prompt = [*known.before, known.part, *text, Image(known.shown[::-1]), *known.after]
        whole = llm.generate(prompt, max_tokens=6, ignore_eos=True)
        ids = llm.encode(prompt)
        assert len(ids) > llm.decoder.max_rows
        straight = llm.straight()
        for n in range(len(ids)):  # row by row
            step = straight.collect(straight.launch([ids[n]], n, logits=True))
        assert int(step.ids[-1]) == whole.tokens[0]


@pytest.mark.gpu
def test_what_an_encoder_gives_stays_on_the_device_and_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_opened", {})  # one of its own, to be lost
    known = Known("llava")
    with opened("llava") as llm:
        if not isinstance(llm.decoder, RaggedDecoder) or not isinstance(llm.decoder.session, GpuSession):
            pytest.skip("no WebGPU adapter")
        assert llm.decoder.media is not None
        encoder = llm.decoder.media.encoders["image"].method.session
        assert isinstance(encoder, GpuSession)
        counters = encoder.counters
        llm.generate(known.prompt, max_tokens=3, ignore_eos=True)
        assert (counters.runs, counters.read_bytes) == (1, 0)
        more = llm.generate([*known.prompt, *known.ids[:3], 9, 8], max_tokens=3, ignore_eos=True)
        assert more.stats.reused_tokens == len(known.before) + len(known.rows) + len(known.after) + 2
        assert counters.runs == 1
        llm.reset()
        assert llm.generate(known.prompt, max_tokens=12, ignore_eos=True).tokens == known.ids
        assert counters.runs == 1  # its rows are in their slot still
        encoder.device.wgpu.destroy()
        with pytest.warns(UserWarning, match="goes on with a new one"):
            assert llm.generate(known.prompt, max_tokens=12, ignore_eos=True).tokens == known.ids


def test_many_at_once_answer_as_each_alone(name: str, where: str | None) -> None:
    known = Known(name)
    other = Image(known.shown[:, ::-1]) if name == "llava" else Audio(known.shown[::-1], 16000)
    prompts = [known.prompt, [7, 8, 9], [*known.before, other, 4], known.prompt, [known.part, 3]]
    prompts += [[other, known.part, other, 5]] if name == "llava" else []
    with opened(name, device=where) as llm:
        alone = [llm.generate(prompt, max_tokens=8, ignore_eos=True).tokens for prompt in prompts]
    with hightide.Engine(PROGRAMS / f"{name}.pte", device=where, max_sequences=6, reproducible=True) as engine:
        together = engine.generate(prompts, max_tokens=8, ignore_eos=True)
        assert [answer.tokens for answer in together] == alone
        two = engine.submit(known.prompt, n=2, max_tokens=8, ignore_eos=True, temperature=0.9, seed=3).results()
        one = engine.submit(known.prompt, max_tokens=8, ignore_eos=True, temperature=0.9, seed=4).result()
        assert two[1].tokens == one.tokens


def test_messages_find_their_place_by_the_template(name: str, where: str | None, tokenizer: Path) -> None:
    known = Known(name)
    part, count = (known.part, 16) if name == "llava" else (Audio(known.shown[:8000], 16000), 25)
    with opened(name, device=where, tokenizer=tokenizer) as llm:
        asked = [{"role": "user", "content": ["See: ", part, " What is this?"]}]
        ids = llm.encode(asked)
        rows = [id for id in ids if id >= SIZE]
        assert rows == list(range(rows[0], rows[0] + count))
        text = [id for id in ids if id < SIZE]
        assert llm.tokenizer is not None
        assert llm.tokenizer.decode(text, special=True) == "<s>user: See:  What is this?\nassistant:"
        whole = llm.generate(asked, max_tokens=9, temperature=0.8, seed=5, ignore_eos=True)
        pieces = list(llm.stream(ids, max_tokens=9, temperature=0.8, seed=5, ignore_eos=True))
        assert [piece.token for piece in pieces] == whole.tokens and len(whole.tokens) == 9
        cut = llm.generate(asked, max_tokens=9, temperature=0.8, seed=5, stop_ids=[whole.tokens[4]], ignore_eos=True)
        assert cut.tokens == whole.tokens[: whole.tokens.index(whole.tokens[4])] and cut.finish_reason == "stop"
        full = llm.generate(asked, ignore_eos=True, temperature=0.8, seed=5)
        assert full.finish_reason == "context" and len(ids) + len(full.tokens) == llm.context + 1
        penalised = llm.generate(asked, max_tokens=9, repetition_penalty=1.3, ignore_eos=True, speculate=False)
        assert len(penalised.tokens) == 9
        guessed = llm.generate(asked, max_tokens=9, speculate=True, ignore_eos=True)
        assert guessed.tokens == llm.generate(asked, max_tokens=9, ignore_eos=True).tokens


def test_what_cannot_be_is_refused_in_a_sentence(tokenizer: Path) -> None:
    known = Known("llava")
    with opened("llava", device="cpu", tokenizer=tokenizer) as llm:
        for prompt, said in [
            (
                [{"role": "user", "content": [Audio(np.zeros(99), 16000)]}],
                "takes text and image only: it has no encoder",
            ),
            ([1, Audio(np.zeros(99), 16000)], "takes text and image only: it has no encoder for audio"),
            ([1, Image(np.zeros((3, 4, 5), np.uint8))], r"not uint8 \[3, 4, 5\]"),
            ([1, Image("no such file.png")], "cannot read the image"),
            ([SIZE + 5000], "outside the vocabulary"),
            ([known.part, *[5] * 70], "the prompt has 86 tokens; the context holds 80"),
            ([1, "two"], "a prompt is text, token ids, or messages"),
        ]:
            with pytest.raises(InputError, match=said):
                llm.generate(prompt, max_tokens=1)
        llm.generate(known.prompt, max_tokens=1)
        with pytest.raises(UnsupportedError, match="cannot be saved"):
            llm.save_state("state.npz")
    with opened("voxtral", device="cpu") as llm, pytest.raises(InputError, match=r"the audio is 3\.1 s long; .* 3 s"):
        llm.generate([1, Audio(np.zeros(49_000), 16000)], max_tokens=1)
    with (
        opened("llama_gqa", device="cpu") as llm,
        pytest.raises(InputError, match="takes text only: it has no encoder"),
    ):
        llm.generate(known.prompt, max_tokens=1)
    with pytest.raises(InputError, match="media_tokens must be the tokens by kind"):
        opened("llava", media_tokens={"video": "x"})
    with pytest.raises(InputError, match="a draft model cannot see"):
        hightide.Engine(PROGRAMS / "llava.pte", device="cpu", draft=PROGRAMS / "llama_gqa.pte")


# ---- commands and the server


@pytest.fixture
def heard(tmp_path: Path) -> Path:
    path = tmp_path / "heard.wav"
    path.write_bytes(wav(Known("voxtral").shown[:8000]))
    return path


def test_generate_takes_files(heard: Path, tokenizer: Path, command: Any) -> None:
    options = ["--audio", heard, "--tokenizer", tokenizer, "--max-tokens", 6, "--device", "cpu", "--json"]
    code, out, err = command("generate", PROGRAMS / "voxtral.pte", "What?", *options)
    assert code == 0, err
    answer = json.loads(out)
    with opened("voxtral", device="cpu", tokenizer=tokenizer) as llm:
        want = llm.generate([{"role": "user", "content": [heard, "What?"]}], max_tokens=6)
    assert answer["tokens"] == want.tokens and answer["stats"]["prompt_tokens"] == want.stats.prompt_tokens


def test_chat_shows_files(
    heard: Path, tokenizer: Path, command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    options = ["--tokenizer", tokenizer, "--max-tokens", 4, "--min-p", 0, "--device", "cpu"]
    lines = f"/audio {heard}\nWhat?\nAnd?\n"
    code, out, err = command("chat", PROGRAMS / "voxtral.pte", *options, stdin=lines.encode())
    assert code == 0, err
    with opened("voxtral", device="cpu", tokenizer=tokenizer) as llm:
        asked: list[dict[str, Any]] = [{"role": "user", "content": [heard, "What?"]}]
        first = llm.generate(asked, max_tokens=4)
        asked += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And?"}]
        second = llm.generate(asked, max_tokens=4)
    assert out == f"{first.text}\n{second.text}\n" and "goes with the next message" in err


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    (folder / "tokenizer_config.json").write_bytes(tokenizer.with_name("tokenizer_config.json").read_bytes())
    models = []
    for name in ("voxtral", "llava"):
        (folder / f"{name}.pte").write_bytes((PROGRAMS / f"{name}.pte").read_bytes())
        models += ["--model", f"{name}={folder / name}.pte"]
    with running(folder, *models, "--device", "cpu") as served:
        yield served


def test_a_server_takes_parts_of_messages(server: Any, heard: Path, tokenizer: Path) -> None:
    data = base64.b64encode(heard.read_bytes()).decode()
    content = [
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "text", "text": "What?"},
    ]
    asked = {"model": "voxtral", "messages": [{"role": "user", "content": content}], "max_tokens": 6, "temperature": 0}
    got = server.post("/v1/chat/completions", asked).json()
    with opened("voxtral", device="cpu", tokenizer=tokenizer) as llm:
        want = llm.generate([{"role": "user", "content": content}], max_tokens=6)
    assert got["choices"][0]["message"]["content"] == want.text
    assert got["usage"]["prompt_tokens"] == want.stats.prompt_tokens


def test_a_server_refuses_what_its_model_does_not_take(server: Any) -> None:
    def refusal(model: str, part: dict[str, Any]) -> str:
        asked = {"model": model, "messages": [{"role": "user", "content": [part]}]}
        answer = server.post("/v1/chat/completions", asked)
        assert answer.status_code == 400, answer.text
        return str(answer.json()["error"]["message"])

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    assert "this model takes text and audio only" in refusal("voxtral", image)
    assert "Pillow" in refusal("llava", image)  # it is missing, or cannot read this
    remote = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/cat.png"}}
    assert "nothing is fetched" in refusal("llava", remote)
    assert "is of type 'video'" in refusal("llava", {"type": "video"})
