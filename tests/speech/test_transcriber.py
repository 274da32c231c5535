"""Speech to text: a small model against the eager one, and the real weights where there are some."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schedules import PROGRAMS, steps
from spoken import CLIPS, END, NO_TIMES, RATE, START, TOKENS, as_int16, clip, tokenizer, wav

from hightide import InputError, Transcriber, UnsupportedError
from hightide.fuse.once import split_at_input
from hightide.graph.graph import Graph
from hightide.llm.tokenizer import Tokenizer
from hightide.pte.program import load
from hightide.runtime.cpu_session import CpuSession
from hightide.speech.whisper_export import write_tokenizer_json
from hightide.speech.whisper_tokens import LANGUAGES, special_tokens, speech_tokens

MODEL = PROGRAMS / "whisper.pte"
REAL = os.environ.get("HIGHTIDE_WHISPER", "")  # a program of base.en or larger, as `hightide export` writes it


@pytest.fixture(scope="module", params=["gpu", "cpu"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcriber]:
    if request.param == "gpu":
        request.getfixturevalue("device")
    path = tokenizer(tmp_path_factory.mktemp("speech"))
    with Transcriber(MODEL, path, None if request.param == "gpu" else "cpu") as transcriber:
        yield transcriber


@pytest.mark.parametrize("n", range(CLIPS))
def test_transcripts_are_those_of_the_eager_model(small: Transcriber, n: int) -> None:
    with np.load(Path(__file__).parent / "expected.npz") as expected:
        want = expected[f"ids{n}"].tolist()
    transcript = small.transcribe(clip(n), RATE)
    (segment,) = transcript.segments
    assert segment.ids == want and transcript.text == str(transcript) == "".join(TOKENS[id] for id in want)
    assert (segment.start, segment.end, transcript.language) == (0.0, 0.9, None)


def test_clips_are_told_apart() -> None:
    with np.load(Path(__file__).parent / "expected.npz") as expected:
        assert len({tuple(expected[f"ids{n}"]) for n in range(CLIPS)}) > 2


def test_long_audio_is_heard_in_windows(small: Transcriber) -> None:
    quiet = np.zeros(RATE // 4, np.float32)
    samples = np.concatenate([clip(0, 0.8), quiet, clip(1, 0.8), quiet, np.zeros(3 * RATE, np.float32)])
    hearing = small.stream(samples, RATE)
    segments = list(hearing)
    assert len(segments) >= 2 and segments[0].start == 0 and abs(hearing.seconds - len(samples) / RATE) < 1e-6
    assert all(before.end <= after.start for before, after in itertools.pairwise(segments))
    assert segments[-1].end < 3  # silence says nothing
    first = samples[: round(segments[0].end * RATE)]
    assert segments[0].ids == small.transcribe(first, RATE).segments[0].ids


def test_silence_is_no_text(small: Transcriber) -> None:
    transcript = small.transcribe(np.zeros(RATE, np.float32), RATE)
    assert transcript.text == "" and transcript.segments == []


def test_what_the_encoder_gave_is_written_once(device: Any, tmp_path: Path) -> None:
    with Transcriber(MODEL, tokenizer(tmp_path)) as transcriber:
        transcriber.transcribe(clip(0), RATE)
        token = transcriber._steps._steps.token
        logits = transcriber.begin(clip(1))
        transcriber._steps.run([NO_TIMES], 1)
        before = token.counters.input_bytes
        transcriber._steps.run([3], 2)
        assert logits.shape == (97,) and token.counters.input_bytes - before <= 16


def test_a_decoder_that_stays_whole_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that takes a token at a time."""
    words = tokenizer(tmp_path)
    with Transcriber(MODEL, words, "cpu") as transcriber:
        want = transcriber.transcribe(clip(2), RATE).segments[0].ids
        transcriber._steps.max_tokens = 1
        assert transcriber.transcribe(clip(2), RATE).segments[0].ids == want
    monkeypatch.setattr("hightide.speech.text_steps.split_at_input", lambda graph, position: None)
    with Transcriber(MODEL, words, "cpu") as transcriber:
        assert transcriber.transcribe(clip(2), RATE).segments[0].ids == want


def test_the_language_is_heard_or_given(tmp_path: Path) -> None:
    names = ["<|en|>", "<|de|>", "<|transcribe|>", "<|translate|>"]
    write_tokenizer_json([*TOKENS[:10], *names, *TOKENS[14:]], tmp_path / "several.json")
    with Transcriber(MODEL, tmp_path / "several.json", "cpu") as transcriber:
        assert transcriber.languages == ["en", "de"]
        logits = transcriber.begin(clip(0))
        heard = transcriber.transcribe(clip(0), RATE)
        assert heard.language == ("en" if logits[10] > logits[11] else "de")
        given = {code: transcriber.transcribe(clip(0), RATE, language=code) for code in ("en", "de")}
        assert given[heard.language] == heard and given["en"].language == "en" and given["de"].language == "de"
        assert transcriber.transcribe(clip(0), RATE, task="translate").language == heard.language
        with pytest.raises(InputError, match="does not know the language 'tlh'; it knows en, de"):
            transcriber.transcribe(clip(0), RATE, language="tlh")


# ---- a decoder in two


def test_what_depends_on_the_encoder_alone_is_computed_once() -> None:
    program = load(MODEL, device="cpu")
    graph = program.single_graph("text_decoder")
    assert graph is not None
    split = split_at_input(graph, 1)
    assert split is not None and not split.keeps_input
    names = [call.name for call in split.first.calls]
    assert names.count("aten.linear.default") == 4 and len(split.first.outputs) == 4  # keys and values of two layers
    assert constant_bytes(split.first) + constant_bytes(split.rest) == constant_bytes(graph)
    first, rest = CpuSession(split.first), CpuSession(split.rest)
    for method, inputs, outputs in steps("whisper"):
        if method == "text_decoder":
            ids, heard, positions = inputs
            (logits,) = rest.run([ids, positions, *first.run([heard])])
            assert np.abs(logits - outputs[0]).max() < 1e-4 * np.ptp(outputs[0])


def test_a_graph_that_needs_all_inputs_everywhere_stays_whole() -> None:
    graph = load(PROGRAMS / "counter.pte", device="cpu").delegate_graph("project", 0)  # linear(x) * sigmoid(y)
    split = split_at_input(graph, 1)
    assert split is not None and [call.name for call in split.first.calls] == ["aten.sigmoid.default"]
    assert split_at_input(split.rest, 1) is None  # only a product is left to do with it


def constant_bytes(graph: Graph) -> int:
    return sum(v.constant.length for v in graph.values if getattr(v, "constant", None) is not None)  # type: ignore[union-attr]


# ---- tokens


def test_special_tokens_have_the_ids_of_openai() -> None:
    for first, count, ids in (
        (50256, 1608, {"<|endoftext|>": 50256, "<|startoftranscript|>": 50257, "<|notimestamps|>": 50362}),
        (50257, 1608, {"<|en|>": 50259, "<|transcribe|>": 50359, "<|0.00|>": 50364, "<|30.00|>": 51864}),
        (50257, 1609, {"<|yue|>": 50358, "<|notimestamps|>": 50364}),
    ):
        tokens = special_tokens(count)
        assert len(tokens) == count == len(set(tokens))
        assert {name: first + tokens.index(name) for name in ids} == ids
    with pytest.raises(UnsupportedError, match="not one of Whisper's"):
        special_tokens(12)


def test_prompts(tmp_path: Path) -> None:
    found = speech_tokens(Tokenizer.from_file(tokenizer(tmp_path)), {}, "a.pte")
    assert (found.start, found.ends, found.prompt("", "transcribe")) == (START, {END}, [NO_TIMES])
    several = TOKENS[:40] + special_tokens(1608)
    path = tmp_path / "several.json"
    write_tokenizer_json(several, path)
    found = speech_tokens(Tokenizer.from_file(path), {"get_eos_id": 40}, "a.pte")
    names = [several[id] for id in found.prompt("de", "translate")]
    assert names == ["<|de|>", "<|translate|>", "<|notimestamps|>"] and list(found.languages) == LANGUAGES[:99]
    assert found.ends == {40} and several.index("<|12.00|>") in found.never and 40 not in found.never


# ---- messages


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "translate"}, "this model cannot translate; it can transcribe"),
        ({"task": "sing"}, "this model cannot 'sing'"),
    ],
)
def test_options_are_checked(small: Transcriber, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small.transcribe(clip(0), RATE, **options)


def test_the_command(hightide: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")
    audio, words = tmp_path / "clip.wav", tokenizer(tmp_path)
    audio.write_bytes(wav(as_int16(clip(1))))
    with Transcriber(MODEL, words) as transcriber:
        want = transcriber.transcribe(audio).text
    code, out, err = hightide("transcribe", MODEL, audio, "--tokenizer", words)
    assert code == 0 and out == want + "\n" and "0.9 s of audio in " in err and "on NumPy" in err
    assert hightide("transcribe", MODEL, audio, "--tokenizer", words, "--times")[1] == f"[0:00.0 - 0:00.9] {want}\n"
    result = json.loads(hightide("transcribe", MODEL, audio, "--tokenizer", words, "--json")[1])
    assert result == {"text": want, "language": None, "segments": [{"start": 0.0, "end": 0.9, "text": want}]}


def test_the_command_refuses_in_one_line(hightide: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")
    audio, words, text = tmp_path / "clip.wav", tokenizer(tmp_path), tmp_path / "text.wav"
    audio.write_bytes(wav(as_int16(clip(1))))
    text.write_text("no audio")
    for args, message in (
        ((MODEL, audio), "whisper.pte has no tokenizer; put its tokenizer.json beside it"),
        ((MODEL, text, "--tokenizer", words), "text.wav is not a WAV file; ffmpeg -i"),
        ((MODEL, tmp_path / "none.wav", "--tokenizer", words), "No such file"),
        ((MODEL, audio, "--tokenizer", words, "--translate"), "this model cannot translate"),
        ((PROGRAMS / "llama_gqa.pte", audio), "llama_gqa.pte is not a speech model: it has no method encoder but"),
        (("none.pte", audio), "cannot read none.pte"),
    ):
        code, out, err = hightide("transcribe", *args)
        assert code == 1 and not out and message in err and err.startswith("hightide: ") and err.count("\n") == 1


# ---- the real weights


SENTENCES = {
    "The quick brown fox jumps over the lazy dog.": {},
    "Yesterday we walked along the river and in the evening it began to rain.": {"-s": "150"},
}


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="HIGHTIDE_WHISPER names no program")
@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="no espeak-ng, which says the sentences")
def test_the_real_model_hears_the_words(device: Any) -> None:
    with Transcriber(REAL) as transcriber:
        for sentence, options in SENTENCES.items():
            say = ["espeak-ng", "--stdout", *(part for option in options.items() for part in option), sentence]
            spoken = subprocess.run(say, capture_output=True, check=True).stdout
            assert words(transcriber.transcribe(spoken).text) == words(sentence)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())
