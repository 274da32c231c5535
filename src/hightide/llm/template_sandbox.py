"""The process that renders chat templates: `template_process` starts it and talks to it over its pipes.

Templates come from strangers' files. They run in jinja2's sandbox, which keeps them from reaching anything but their
variables, in a process with little memory and time, which ends whatever else they do. Imports nothing but jinja2.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hightide.llm.template_pipe import MAX_BYTES, MAX_SECONDS, OUT_OF_MEMORY, pack, receive, send

if sys.platform == "win32":
    import ctypes
else:
    import resource

MAX_CHARACTERS = 1 << 22  # of a prompt and of any string in it: about a million tokens
MAX_RANGE = 100_000  # steps of all ranges of one rendering
KEPT_CHARACTERS = 1 << 16  # longer templates are compiled each time, lest they fill the memory


def serve() -> None:
    """Answers requests until stdin ends, as it does when the other side exits."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other side, which then ends this one
        _limit_memory()
        send(answers, pack({"ready": True}))
        while (request := receive(requests)) is not None:
            _end_in(2 * MAX_SECONDS)  # should there be nobody left to end it
            send(answers, pack(answer(**request)))
            _end_in(0)
    except MemoryError:  # whatever is left may be in pieces
        os._exit(OUT_OF_MEMORY)


def answer(template: str, values: dict[str, Any]) -> dict[str, str]:
    """{"text": the prompt}, or {"error": why there is none}."""
    parts, length = [], 0
    try:
        compiled = (_kept if len(template) <= KEPT_CHARACTERS else _compile)(template)
        for part in compiled.generate(values, range=_bounded_range()):
            length += len(part)
            if length > MAX_CHARACTERS:
                raise _Refused(f"it wrote more than {MAX_CHARACTERS} characters")
            parts.append(part)
    except jinja2.TemplateSyntaxError as error:
        return {"error": f"the chat template is not valid, at line {error.lineno}: {_sentence(error)}"}
    except _Refused as error:
        return {"error": f"the chat template refused the messages: {_sentence(error)}"}
    except MemoryError:
        raise
    except Exception as error:  # a template can fail in every way that Python can
        return {"error": f"the chat template failed on these messages: {_sentence(error)}"}
    return {"text": "".join(parts)}


class _Refused(jinja2.TemplateError):
    """A template's own `raise_exception`, or a bound that it passed."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox, which also refuses products and sums that would fill the memory, and says so."""

    intercepted_binops = frozenset(["+", "*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        lengths = [len(value) if isinstance(value, str | list | tuple) else None for value in (left, right)]
        if operator == "**" and isinstance(left, int) and left.bit_length() * right > 4096:
            raise _Refused(f"it asked for a number to the power of {right}")
        if operator == "+" and None not in lengths and sum(n or 0 for n in lengths) > MAX_CHARACTERS:
            raise _Refused(f"it asked for a value of more than {MAX_CHARACTERS} characters")
        if operator == "*" and any(lengths) and (lengths[0] or left) * (lengths[1] or right) > MAX_CHARACTERS:
            raise _Refused(f"it asked for a value of more than {MAX_CHARACTERS} characters")
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """`{% generation %}` marks an answer for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _compile(template: str) -> jinja2.Template:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _Generation])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


_kept = lru_cache(maxsize=4)(_compile)


def _raise(message: object) -> NoReturn:
    raise _Refused(str(message))


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON as it is: jinja2's own filter escapes < and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _bounded_range() -> Any:
    """`range`, of which one rendering may take so many steps, nested loops included."""
    left = MAX_RANGE

    def bounded(*arguments: int) -> Iterable[int]:
        nonlocal left
        steps = range(*arguments)
        left -= len(steps) + 1
        if left < 0:
            raise _Refused(f"it loops more than {MAX_RANGE} times")
        return steps

    return bounded


def _sentence(error: Exception) -> str:
    """One line, of a length for a terminal."""
    return " ".join(str(error)[:1000].split())[:300] or type(error).__name__


if sys.platform == "win32":

    class _JobLimits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = [
            ("times", ctypes.c_int64 * 2),
            ("flags", ctypes.c_uint32),
            ("working_set", ctypes.c_size_t * 2),
            ("processes", ctypes.c_uint32),
            ("affinity", ctypes.c_size_t),
            ("classes", ctypes.c_uint32 * 2),
            ("io", ctypes.c_uint64 * 6),
            ("process_memory", ctypes.c_size_t),
            ("others", ctypes.c_size_t * 3),
        ]

    def _limit_memory() -> None:
        """By a job with a memory limit (0x100) that this process puts itself into."""
        kernel = ctypes.WinDLL("kernel32")
        kernel.CreateJobObjectW.restype = kernel.GetCurrentProcess.restype = ctypes.c_void_p
        job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
        limits = _JobLimits(flags=0x100, process_memory=MAX_BYTES + (32 << 20))
        kernel.SetInformationJobObject(job, 9, ctypes.byref(limits), ctypes.sizeof(limits))
        kernel.AssignProcessToJobObject(job, ctypes.c_void_p(kernel.GetCurrentProcess()))

    def _end_in(seconds: float) -> None:
        """The other side ends it."""

else:

    def _limit_memory() -> None:
        """Linux counts address space, and lets allocations beyond the limit fail. Elsewhere a thread looks."""
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
        except (OSError, ValueError):
            threading.Thread(target=_watch_memory, daemon=True).start()

    def _watch_memory() -> None:
        unit = 1 if sys.platform == "darwin" else 1024
        most = MAX_BYTES + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < most:
            time.sleep(0.01)
        os._exit(OUT_OF_MEMORY)

    def _end_in(seconds: float) -> None:
        """The system ends this process after so many seconds; 0: not any more."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.setitimer(signal.ITIMER_REAL, seconds)
