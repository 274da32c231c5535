"""The process of `template_sandbox`, from the outside: started once, asked for each rendering, ended when it does not
answer in time."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from hightide.errors import HightideError, InputError
from hightide.llm.template_pipe import MAX_BYTES, MAX_SECONDS, OUT_OF_MEMORY, Message, receive, send

START_SECONDS = 60.0  # a quarter of a second, unless the machine has much else to do
# It runs without site packages and environment variables: beside Python's own modules it finds only what is named.
_PROGRAM = "import sys; sys.path += sys.argv[1:]; from hightide.llm.template_sandbox import serve; serve()"


class TemplateProcess:
    """One process for all threads, which wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def start(self) -> None:
        """Start it, if it does not run; it gets ready in the background."""
        with self._lock:
            self._started()

    def ask(self, request: bytes) -> Message:
        """The answer to a packed request. Whatever goes wrong, an interrupt too, ends the process."""
        with self._lock:
            process = self._started()
            try:
                if not self._ready:
                    _exchange(process, None, START_SECONDS)
                    self._ready = True
                return _exchange(process, request, MAX_SECONDS)
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """End it; the next request starts another."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = _start()
        return self._process

    def _end(self) -> None:
        process, self._process, self._ready = self._process, None, False
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not sent yet
                _open(pipe).close()


_shared = TemplateProcess()


def shared_process() -> TemplateProcess:
    """The one that is ended when Python exits."""
    return _shared


def _renew() -> None:
    """After a fork: the process, and maybe the lock, belong to the other side."""
    global _shared
    _shared = TemplateProcess()


atexit.register(lambda: _shared.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _start() -> subprocess.Popen[bytes]:
    if getattr(sys, "frozen", False) or not sys.executable:
        raise HightideError("chat templates need a Python interpreter to run in, and this program has none")
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, *_roots("hightide", "jinja2", "markupsafe")]
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, creationflags=flags)
    except OSError as error:
        raise HightideError(f"the process for chat templates could not be started: {error}") from None


def _roots(*packages: str) -> list[str]:
    """The folders that these packages are in."""
    specs = [find_spec(package) for package in packages]
    folders = [spec.submodule_search_locations[0] for spec in specs if spec and spec.submodule_search_locations]
    return list(dict.fromkeys(str(Path(folder).absolute().parent) for folder in folders))


def _exchange(process: subprocess.Popen[bytes], request: bytes | None, seconds: float) -> Message:
    """Send a request, or none, and wait for an answer."""
    answer: Message | None = None
    with _called_after(seconds, process.kill) as called, suppress(BrokenPipeError):
        if request is not None:
            send(_open(process.stdin), request)
        answer = receive(_open(process.stdout))
    if called:
        what = "the chat template was stopped: it" if request else "the process for chat templates"
        raise InputError(f"{what} took longer than {seconds:g} s")
    if answer is None:
        raise _death(process, at_work=request is not None)
    return answer


def _death(process: subprocess.Popen[bytes], at_work: bool) -> HightideError:
    """Why there is no answer."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    if process.returncode == OUT_OF_MEMORY:
        return InputError(f"the chat template was stopped: it took more than {MAX_BYTES >> 20} MB of memory")
    if at_work:
        return InputError(f"the chat template crashed the process that rendered it (exit code {process.returncode})")
    return HightideError(f"the process for chat templates could not be started (exit code {process.returncode})")


@contextmanager
def _called_after(seconds: float, function: Callable[[], None]) -> Iterator[list[bool]]:
    """Calls the function if the block takes longer than that, and then puts True into the list."""
    called: list[bool] = []

    def call() -> None:
        called.append(True)
        function()

    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    try:
        yield called
    finally:
        timer.cancel()
        timer.join()  # called now, or never


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
