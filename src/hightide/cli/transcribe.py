"""`hightide transcribe`: what is said in a WAV file, as text."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from hightide.cli.options import Device, Json, Route, note, write_answer
from hightide.ops.choices import parse_routes
from hightide.speech.transcriber import Segment, Transcriber


def transcribe(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A .pte file of a Whisper model.", show_default=False)],
    audio: Annotated[str, typer.Argument(metavar="AUDIO", help="A WAV file; - reads stdin.", show_default=False)],
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The tokenizer.json, if there is none beside the model.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Such as en or de, for a model of several languages. Default: the one it hears.")
    ] = None,
    translate: Annotated[bool, typer.Option("--translate", help="Translate to English.")] = False,
    times: Annotated[bool, typer.Option("--times", help="Print each part with its times in the audio.")] = False,
    device: Device = None,
    route: Route = None,
    as_json: Json = False,
) -> None:
    """Write down what is said in a WAV file.

    Audio of any length is transcribed in windows of 30 s, which are cut where
    it is quiet. Each is printed as soon as it is ready.
    """
    data = sys.stdin.buffer.read() if audio == "-" else audio
    start = time.perf_counter()
    with Transcriber(model, tokenizer, device, routes=parse_routes(route or ())) as transcriber:
        loaded = time.perf_counter()
        task = "translate" if translate else "transcribe"
        hearing = transcriber.stream(data, language=language, task=task)
        if as_json:
            heard = hearing.transcript()
            segments = [{"start": s.start, "end": s.end, "text": s.text} for s in heard.segments]
            print(json.dumps({"text": heard.text, "language": heard.language, "segments": segments}))
        else:
            for segment in hearing:
                write_answer(f"{_between(segment)}{segment.text}\n" if times else f"{segment.text}\n")
        seconds = time.perf_counter() - loaded
        note(
            f"{hearing.seconds:.1f} s of audio in {seconds:.1f} s on {transcriber.device}, "
            f"loaded in {loaded - start:.1f} s"
        )


def _between(segment: Segment) -> str:
    """`[0:27.5 - 1:02.0] `"""
    ends = (divmod(seconds, 60) for seconds in (segment.start, segment.end))
    return "[{} - {}] ".format(*(f"{int(minutes)}:{seconds:04.1f}" for minutes, seconds in ends))
