"""Models from the Hugging Face Hub, into the cache that other tools share; a download that was cut off goes on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hightide.errors import HightideError, InputError
from hightide.formats.split_gguf import split_paths

CONNECT_SECONDS = 10.0
PREFERRED = "Q4_K_M"  # of a repository with many GGUF files
_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?")


def pull(name: str, revision: str | None = None) -> Path:
    """Fetches OWNER/MODEL, or OWNER/MODEL:TYPE of a repository with GGUF files; returns the folder or file."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InputError(f"a model is named OWNER/MODEL, or OWNER/MODEL:TYPE for one of its GGUF files, not {name!r}")
    hub = _hub()
    try:
        # One request without retries: where there is no network, it is said at once.
        info = hub.HfApi().model_info(found[1], revision=revision, timeout=CONNECT_SECONDS)
        chosen = choose_files(name, [file.rfilename for file in info.siblings or ()], found[2])
        folder = Path(hub.snapshot_download(found[1], revision=revision, allow_patterns=chosen))
    except hub.errors.GatedRepoError:
        raise InputError(f"{found[1]} asks for consent: give it at https://huggingface.co/{found[1]}") from None
    except (hub.errors.RepositoryNotFoundError, hub.errors.HFValidationError):
        raise InputError(f"there is no model {found[1]} on the Hugging Face Hub, or you may not see it") from None
    except (hub.errors.HfHubHTTPError, getattr(hub.errors, "HTTPError", OSError), OSError) as error:
        raise HightideError(f"{name} could not be fetched: {' '.join(str(error).split())[:300]}") from None
    return folder / chosen[0] if chosen[0].endswith(".gguf") else folder


def choose_files(name: str, files: Sequence[str], kind: str | None) -> list[str]:
    """The files of a repository that a model needs: those of a folder, or one GGUF model with all its parts."""
    if kind is None and "config.json" in files and any(_is_weights(file) for file in files):
        beside = ("config.json", "generation_config.json", "special_tokens_map.json", "model.safetensors.index.json")
        tokenizer = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja")
        return [file for file in files if file in (*beside, *tokenizer) or _is_weights(file)]
    models = [file for file in files if file.endswith(".gguf") and "mmproj" not in file and _is_first(file)]
    wanted = kind or (PREFERRED if len(models) > 1 else "")
    fitting = [file for file in models if wanted.lower() in file.lower()]
    if not models:
        raise InputError(f"{name} has neither safetensors with a config.json nor GGUF files")
    if len(fitting) != 1:
        shown = ", ".join(sorted(Path(file).name for file in fitting or models))
        raise InputError(f"{name} has several GGUF models; name one behind a colon, such as :{PREFERRED}: {shown}")
    return [part.as_posix() for part in split_paths(fitting[0])]


def _is_weights(file: str) -> bool:
    return "/" not in file and file.startswith("model") and file.endswith(".safetensors")


def _is_first(file: str) -> bool:
    return split_paths(file)[0] == Path(file)


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise HightideError("hightide pull needs the huggingface_hub package: pip install 'hightide[hub]'") from None
    return huggingface_hub
