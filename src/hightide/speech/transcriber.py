"""Speech to text with a Whisper program: a spectrogram, the encoder and the text decoder, window by window."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, UnsupportedError
from hightide.llm.tokenizer import Tokenizer, find_tokenizer
from hightide.media.audio import RATE, load_audio
from hightide.media.log_mel import HOP, log_mel
from hightide.option_checks import shown
from hightide.planning.levels import InputSpec
from hightide.pte.program import Program, load
from hightide.runtime.closing import Closing
from hightide.speech.text_steps import TextSteps
from hightide.speech.whisper_tokens import speech_tokens

ENCODERS, DECODERS = ("encoder", "audio_encoder"), ("text_decoder", "decoder")
TASKS = ("transcribe", "translate")
# As OpenAI's: a window without speech is one that the model says so of, and whose words it is not sure of.
NO_SPEECH_ABOVE, SURE_ABOVE = 0.6, -1.0
SEARCHED = 6  # the last part of a window, in which it is cut where it is quietest: a sixth
QUIET = 1e-5  # a peak below it is silence
TURNS, TURN_TOKENS = 4, 24  # tokens said so often in a row, and so many of them, will be said forever


@dataclass(frozen=True)
class Segment:
    """A part of the audio and what is said in it."""

    start: float  # seconds
    end: float
    text: str
    ids: list[int]


@dataclass(frozen=True)
class Transcript:
    text: str
    segments: list[Segment]
    language: str | None  # of a model that knows several: the one given, or heard in the first segment
    seconds: float  # of audio

    def __str__(self) -> str:
        return self.text


class Transcriber(Closing):
    """A speech model on a device.

    `model` is a `.pte` program with the methods `encoder` and `text_decoder`. `tokenizer` is a tokenizer.json; by
    default `MODEL.tokenizer.json` or `tokenizer.json` beside the program. `device` as in `hightide.load`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
        device: str | int | None = None,
        *,
        routes: Mapping[str, str] | None = None,
    ) -> None:
        self.program = load(model, device, routes=routes)
        path = self.program.file.path
        encoder, decoder = _method_name(self.program, ENCODERS), _method_name(self.program, DECODERS)
        found = find_tokenizer(path, tokenizer, None)
        if found is None:
            raise InputError(f"{path.name} has no tokenizer; put its tokenizer.json beside it, or name one")
        self.tokenizer = found
        self.tokens = speech_tokens(found, self.program.metadata, path.name)
        takes = _spectrogram_input(self.program, encoder)
        _, self.mels, self.frames = takes.dims
        self._steps = TextSteps(self.program, decoder)
        self._encoder = self.program.method(encoder)
        self._dtype = takes.dtype
        self.context = int(self.program.metadata.get("get_max_seq_len", 448))
        self._masks: tuple[np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        return f"<Transcriber {self.program.file.path.name}: {self.mels} mels, {self.frames * HOP / RATE:g} s>"

    @property
    def languages(self) -> list[str]:
        """What a model of several languages knows."""
        return list(self.tokens.languages)

    @property
    def device(self) -> str:
        """The adapter's name, or NumPy."""
        return self._encoder.sessions[0].name if self._encoder.sessions else "NumPy"

    def transcribe(
        self, audio: Any, sample_rate: int | None = None, *, language: str | None = None, task: str = "transcribe"
    ) -> Transcript:
        """The text of a WAV file (a path or bytes), or of an array [samples] or [samples, channels] with its rate.

        `language`, such as "de", is for models of several languages; by default it is heard. `task` "translate"
        gives English.
        """
        return self.stream(audio, sample_rate, language=language, task=task).transcript()

    def stream(
        self, audio: Any, sample_rate: int | None = None, *, language: str | None = None, task: str = "transcribe"
    ) -> Hearing:
        """The same, to be iterated over: a segment at a time, as they are heard."""
        if task not in TASKS or (task == "translate" and not self.tokens.languages):
            raise InputError(f"this model cannot {task if task in TASKS else shown(task)}; it can transcribe")
        if language is not None and self.tokens.languages and language not in self.tokens.languages:
            known = ", ".join(self.tokens.languages)
            raise InputError(f"this model does not know the language {shown(language)}; it knows {known}")
        return Hearing(self, load_audio(audio, sample_rate), language if self.tokens.languages else None, task)

    def close(self) -> None:
        """Frees what it holds on the device."""
        self._steps.close()
        self.program.close()

    def begin(self, window: np.ndarray) -> np.ndarray:
        """Encodes a window of samples; gives the logits behind the start token."""
        features = log_mel(window, self.mels, self.frames).astype(self._dtype)
        self._steps.begin(self._encoder(features[None])[0])
        return self._steps.run([self.tokens.start], 0)[-1]

    def decode(self, logits: np.ndarray, prompt: Sequence[int]) -> tuple[list[int], float]:
        """The likeliest tokens behind the start token, whose logits are given, and a prompt; how sure it is of them.

        That is the mean log probability of a token, of the end too.
        """
        if prompt:
            logits = self._steps.run(prompt, 1)[-1]
        never, never_first = self._allowed(len(logits))
        ids: list[int] = []
        sure = 0.0
        for position in range(1 + len(prompt), self.context):
            row = logits + (never if ids else never_first)
            token = int(row.argmax())
            sure += float(log_softmax(row)[token])
            if token in self.tokens.ends:
                break
            ids.append(token)
            if copies := endless(ids):
                del ids[-copies:]
                break
            logits = self._steps.run([token], position)[-1]
        return ids, sure / (len(ids) + 1)

    def _allowed(self, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
        """What is added to logits: -infinity for what may not come, at any place and at the first."""
        if self._masks is None:
            never = np.zeros(vocabulary, np.float32)
            never[[id for id in self.tokens.never if id < vocabulary]] = -np.inf
            never[self.tokenizer.vocab_size :] = -np.inf  # some models have more logits than tokens
            never_first = never.copy()
            never_first[[id for id in self.tokens.never_first if id < vocabulary]] = -np.inf
            self._masks = never, never_first
        return self._masks


class Hearing:
    """What is said in some audio: iterate over its segments as they are heard."""

    def __init__(self, transcriber: Transcriber, samples: np.ndarray, language: str | None, task: str) -> None:
        self.language = language  # None until the first segment was heard, if nobody said, or if the model has one only
        self.seconds = len(samples) / RATE
        self._transcriber, self._samples, self._task = transcriber, samples, task

    def __iter__(self) -> Iterator[Segment]:
        length = self._transcriber.frames * HOP
        for start, end in windows(self._samples, length):
            ids = self._ids(self._samples[start:end])
            if ids:
                text = self._transcriber.tokenizer.decode(ids).strip()
                yield Segment(start / RATE, end / RATE, text, ids)

    def transcript(self) -> Transcript:
        """All of it."""
        segments = list(self)
        text = self._transcriber.tokenizer.decode(id for segment in segments for id in segment.ids)
        return Transcript(text.strip(), segments, self.language, self.seconds)

    def _ids(self, window: np.ndarray) -> list[int]:
        """The tokens of one window, without the prompt and the end; none if nobody speaks."""
        if np.abs(window).max() < QUIET:
            return []
        tokens = self._transcriber.tokens
        logits = self._transcriber.begin(window)
        if tokens.languages and self.language is None:
            self.language = max(tokens.languages, key=lambda name: float(logits[tokens.languages[name]]))
        unspoken = 0.0 if tokens.no_speech is None else float(np.exp(log_softmax(logits)[tokens.no_speech]))
        ids, sure = self._transcriber.decode(logits, tokens.prompt(self.language or "", self._task))
        return [] if unspoken > NO_SPEECH_ABOVE and sure < SURE_ABOVE else ids


def windows(samples: np.ndarray, length: int) -> Iterator[tuple[int, int]]:
    """(first, end) of windows of at most `length` samples, cut where it is quietest in their last part."""
    start = 0
    while len(samples) - start > length:
        tail = samples[start + length - length // SEARCHED : start + length].astype(np.float64)
        blur = max(1, min(len(tail), RATE // 5))  # a fifth of a second
        power = np.convolve(tail**2, np.ones(blur), "valid")
        end = start + length - len(tail) + int(power.argmin()) + blur // 2
        yield start, end
        start = end
    yield start, len(samples)


def endless(ids: Sequence[int]) -> int:
    """How many tokens at the end are copies of those before them, if they have come too often; else 0."""
    for period in range(1, len(ids) // TURNS + 1):
        turns = max(TURNS, -(-TURN_TOKENS // period))
        tail = ids[-period * turns :]
        if len(tail) == period * turns and all(tail[n] == tail[n + period] for n in range(len(tail) - period)):
            return period * (turns - 1)
    return 0


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def _spectrogram_input(program: Program, encoder: str) -> InputSpec:
    info = program.methods[encoder]
    for spec in info.inputs if len(info.inputs) == 1 else ():
        if len(spec.dims) == 3 and spec.dims[0] == 1 and spec.dtype.startswith("float"):
            return spec
    takes = f"{encoder}{info!r} must take a spectrogram [1, mels, frames]"
    raise UnsupportedError(f"{program.file.path.name} is not a speech model: {takes}")


def _method_name(program: Program, names: Sequence[str]) -> str:
    for name in names:
        if name in program.methods:
            return name
    has = ", ".join(program.methods) or "none"
    raise UnsupportedError(f"{program.file.path.name} is not a speech model: it has no method {names[0]} but {has}")
