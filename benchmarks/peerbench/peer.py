"""Peers: other engines on the same work, each a process of its own that stays up and takes orders.

Their scripts are in `engines/` (the wire is described in `engines/wire.py`); what they need is installed into the
cache folder by `python benchmarks/compare.py --setup`, never into hightide's own environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hightide.errors import HightideError
from hightide.folders import cache_folder
from hightide.tools.bench.samples import Measured, TimeSample

SCRIPTS = Path(__file__).parent / "engines"
PATIENCE = 900.0  # seconds for an answer: the first one may compile shaders for minutes


class PeerError(HightideError):
    """A peer is not there, or would not do what it was asked for."""


@dataclass(frozen=True)
class Kind:
    """One peer: how it is called, what it runs, what it needs."""

    name: str
    key: str  # on the command line, and the name of its folder
    script: str
    needs: tuple[str, ...]  # pip requirements, or npm packages for an .mjs script
    takes: frozenset[str]  # "model", "matmul", "page" (a script of `web/`, run by a browser: see browser.py)
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict, hash=False)  # of its environment
    on_cpu: bool = False  # a reference that does not use the adapter

    @property
    def folder(self) -> Path:
        return cache_folder() / "peers" / self.key

    @property
    def node(self) -> bool:
        return self.script.endswith(".mjs")


def _llama(name: str, backend: str, **more: Any) -> Kind:
    needs = ("node-llama-cpp@3.22.1",)
    return Kind(name, "llama.cpp", "llama_cpp.mjs", needs, frozenset({"model"}), (backend,), **more)


def _torch(name: str, form: str) -> Kind:
    needs = ("torch==2.13.0", "numpy", "gguf")
    return Kind(name, "torch", "torch_cpu.py", needs, frozenset({"model"}), (form,), on_cpu=True)


def _page(name: str, script: str) -> Kind:
    needs = ("@huggingface/transformers@4.3.1", "@wllama/wllama@3.8.1")  # the first brings its onnxruntime-web
    return Kind(name, "web", script, needs, frozenset({"page"}))


KINDS = (
    # Without the variable llama.cpp leaves software adapters alone and runs on the CPU in silence.
    _llama("llama.cpp Vulkan", "vulkan", settings={"GGML_VK_VISIBLE_DEVICES": "0"}),
    _llama("llama.cpp CPU", "cpu", on_cpu=True),
    Kind(
        "ONNX Runtime WebGPU",
        key="onnxruntime",
        script="onnxruntime_webgpu.py",
        needs=("onnxruntime-webgpu==1.27.0", "onnx", "numpy", "gguf"),
        takes=frozenset({"model", "matmul"}),
    ),
    Kind(
        "tinygrad WebGPU",
        key="tinygrad",
        script="tinygrad_webgpu.py",
        needs=("tinygrad==0.14.0", "dawn-python==0.3.0", "numpy"),
        takes=frozenset({"matmul"}),
        settings={"DEV": "WEBGPU"},
    ),
    _torch("torch f32 CPU", "f32"),
    _torch("torch int4 CPU", "int4"),
    _page("transformers.js", "transformers.mjs"),
    _page("wllama", "wllama.mjs"),
)
KEYS = tuple(dict.fromkeys(kind.key for kind in KINDS))


def interpreter(kind: Kind) -> str:
    """What runs the peer's script, or PeerError with the command that installs it."""
    if kind.node:
        node = shutil.which("node")
        if node is None:
            raise PeerError(f"{kind.name} is left out: it needs node 20 or newer, which is not installed")
        if _packages_are_there(kind):
            return node
    else:
        python = kind.folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        if (kind.folder / "ready").is_file() and python.exists():
            return str(python)
        if kind.key == "torch" and find_spec("torch") is not None:
            return sys.executable
    raise _missing(kind)


def packages(kind: Kind) -> Path:
    """The folder of a peer's npm packages, or PeerError with the command that installs them."""
    if not _packages_are_there(kind):
        raise _missing(kind)
    return kind.folder / "node_modules"


def _packages_are_there(kind: Kind) -> bool:
    names = [need.rpartition("@")[0] for need in kind.needs]
    return all((kind.folder / "node_modules" / name / "package.json").is_file() for name in names)


def _missing(kind: Kind) -> PeerError:
    command = f"python benchmarks/compare.py --setup {kind.key}"
    return PeerError(f"{kind.name} is left out: install it with `{command}`")


class Peer:
    """A running peer."""

    def __init__(self, kind: Kind, model: Path | None = None, patience: float = PATIENCE) -> None:
        self.kind, self.name, self.on_cpu, self.patience = kind, kind.name, kind.on_cpu, patience
        command = [interpreter(kind), str(SCRIPTS / kind.script), *([str(model)] if model else []), *kind.arguments]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the peer is)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            cwd=kind.folder if kind.folder.is_dir() else None,
            env={**os.environ, **kind.settings, **_libraries(kind)},
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            told = self._answer()
        except PeerError:
            self.close()
            raise
        self.about: dict[str, Any] = told["ready"]
        self.load = TimeSample(**told["load"])

    def prefill(self, tokens: Sequence[int]) -> Measured:
        return self._ask({"do": "prefill", "tokens": list(tokens)})

    def decode(self, count: int) -> Measured:
        return self._ask({"do": "decode", "count": count})

    def parallel(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        """`count` new tokens for each prompt, all at once: new tokens per second."""
        made = self._ask({"do": "parallel", "prompts": [list(ids) for ids in prompts], "count": count})
        return len(made.ids) / (made.samples[0].wall_ms / 1e3)

    def serve(self, sequences: int, context: int) -> str:
        """The address of an HTTP server that answers so many requests at once, each of at most `context` tokens."""
        self._send({"do": "serve", "sequences": sequences, "context": context})
        return f"http://127.0.0.1:{self._answer()['port']}"

    def matmul(self, rows: int, count: int) -> Measured:
        return self._ask({"do": "matmul", "rows": rows, "count": count})

    def close(self) -> None:
        if self._process.poll() is None:
            try:
                self._send({"do": "quit"})
                self._process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        for stream in (self._process.stdin, self._said):
            if stream is not None:
                with contextlib.suppress(OSError):  # it may have ended before it read what was sent
                    stream.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, order: dict[str, Any]) -> Measured:
        try:
            self._send(order)
        except OSError:
            raise self._error("it ended") from None
        told = self._answer()
        return Measured(tuple(TimeSample(**sample) for sample in told["samples"]), tuple(told["ids"]))

    def _send(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put(None)

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=self.patience)
        except queue.Empty:
            raise self._error(f"it did not answer for {self.patience:.0f} s") from None
        if line is None:
            raise self._error("it ended")
        try:
            told: dict[str, Any] = json.loads(line)
        except ValueError:
            raise self._error(f"it said {line.strip()[:80]!r}") from None
        if "error" in told:
            raise self._error(told["error"])
        return told

    def _error(self, what: str) -> PeerError:
        if what == "it ended":
            self._said.seek(0)
            last = self._said.read()[-2000:].decode(errors="replace").strip().splitlines()
            what = f"it ended ({last[-1][:200]})" if last else what
        return PeerError(f"{self.name} is left out: {what}")


def _libraries(kind: Kind) -> dict[str, str]:
    """tinygrad looks for Dawn where this says."""
    if kind.key != "tinygrad":
        return {}
    name = f"libwebgpu_dawn_{os.uname().machine}.so" if hasattr(os, "uname") else "webgpu_dawn.dll"
    found = next(kind.folder.glob(f"**/pydawn/lib/{name}"), None)
    return {"WEBGPU_PATH": str(found)} if found else {}


def set_up(key: str) -> Path:
    """Install what a peer needs into a folder of its own."""
    kind = next((kind for kind in KINDS if kind.key == key), None)
    if kind is None:
        raise PeerError(f"there is no peer {key!r}; there are {', '.join(KEYS)}")
    kind.folder.mkdir(parents=True, exist_ok=True)
    if kind.node:
        if shutil.which("npm") is None:
            raise PeerError(f"{key} needs node and npm 20 or newer, which are not installed")
        (kind.folder / "package.json").write_text('{"private": true}')
        _install([shutil.which("npm") or "npm", "install", "--ignore-scripts", "--no-fund", *kind.needs], kind)
    else:
        _install([sys.executable, "-m", "venv", str(kind.folder)], kind)
        python = kind.folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        _install([str(python), "-m", "pip", "install", "--quiet", *kind.needs], kind)
        (kind.folder / "ready").touch()
    return kind.folder


def _install(command: list[str], kind: Kind) -> None:
    done = subprocess.run(command, cwd=kind.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing was said"]
        raise PeerError(f"{kind.key} could not be installed: {said[-1][:300]}")
