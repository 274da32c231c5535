"""The special tokens of Whisper: which there are, what a prompt is made of, and what must not be heard."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hightide.errors import UnsupportedError
from hightide.llm.pretokenizers import SPELLING
from hightide.llm.tokenizer import Tokenizer

END, START = "<|endoftext|>", "<|startoftranscript|>"
TRANSLATE, TRANSCRIBE = "<|translate|>", "<|transcribe|>"
NO_SPEECH, NO_TIMES = "<|nospeech|>", "<|notimestamps|>"
# In the order of their ids; the last came with large-v3.
LANGUAGES = re.findall(
    r"\S+",
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue",
)
ENGLISH_END = 50256  # the id of END in the vocabulary of models that know English only
# Signs that stand for something other than speech: markup, music.
SIGNS = [*'"#()*+/:;<=>@[\\]^_`{|}~「」『』♩♪♫♬♭♮♯', "<<", ">>", "--", "---", "-(", "-[", "('", '("', "((", "))", "♪♪"]
TIMES = [f"<|{n / 50:.2f}|>" for n in range(1501)]  # 0 to 30 s


def special_tokens(count: int) -> list[str]:
    """The last `count` tokens of a vocabulary, in the order of their ids."""
    tasks = [TRANSLATE, TRANSCRIBE, "<|startoflm|>", "<|startofprev|>", NO_SPEECH, NO_TIMES]
    languages = count - len(tasks) - len(TIMES) - 2
    if languages not in (len(LANGUAGES) - 1, len(LANGUAGES)):
        raise UnsupportedError(f"a vocabulary with {count} special tokens is not one of Whisper's")
    return [END, START, *(f"<|{name}|>" for name in LANGUAGES[:languages]), *tasks, *TIMES]


@dataclass(frozen=True)
class SpeechTokens:
    """What of a vocabulary has a meaning of its own while speech is transcribed."""

    start: int
    ends: frozenset[int]
    languages: Mapping[str, int]  # empty for a model of one language
    tasks: Mapping[str, int]
    no_times: int | None
    no_speech: int | None
    never: frozenset[int]  # special tokens but the ends, and signs that nobody says
    never_first: frozenset[int]

    def prompt(self, language: str, task: str) -> list[int]:
        """What follows the start token."""
        chosen = [self.languages[language], self.tasks[task]] if self.languages else []
        return chosen + ([] if self.no_times is None else [self.no_times])


def speech_tokens(tokenizer: Tokenizer, metadata: Mapping[str, Any], name: str) -> SpeechTokens:
    """From the names in the vocabulary, and where it has none from the program's constant methods."""

    def find(*spellings: str) -> int | None:
        return next((id for s in spellings if (id := tokenizer.backend.token_to_id(s)) is not None), None)

    start = find(START)
    start = metadata.get("decoder_start_token_id") if start is None else start
    ends = metadata.get("get_eos_ids", metadata.get("get_eos_id", find(END)))
    ends = frozenset(int(end) for end in (ends if isinstance(ends, list) else [ends]) if end is not None)
    if not isinstance(start, int) or not ends:
        raise UnsupportedError(
            f"{name} says neither in its tokenizer nor in its methods where a transcript starts and ends"
        )
    languages = {name: id for name in LANGUAGES if (id := find(f"<|{name}|>")) is not None}
    tasks = {"transcribe": find(TRANSCRIBE), "translate": find(TRANSLATE)}
    several = find(END) != ENGLISH_END and None not in tasks.values()
    signs = {id for sign in SIGNS for s in (sign, f" {sign}") if (id := find(_spelled(s))) is not None}
    signs |= {id for s in (" -", " '") if (id := find(_spelled(s))) is not None}
    blank = find(_spelled(" "))
    return SpeechTokens(
        start=start,
        ends=ends,
        languages=languages if several else {},
        tasks={task: id for task, id in tasks.items() if id is not None},
        no_times=find(NO_TIMES),
        no_speech=find(NO_SPEECH, "<|nocaptions|>"),
        never=frozenset((tokenizer.control | tokenizer.literal | signs) - ends),
        never_first=ends | ({blank} if blank is not None else set()),
    )


def _spelled(text: str) -> str:
    return "".join(SPELLING[byte] for byte in text.encode())
