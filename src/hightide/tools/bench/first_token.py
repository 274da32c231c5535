"""From a file to its first token, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hightide.errors import HightideError

PROMPT = 16  # tokens


def first_token(model: Path, device: str | None = None) -> dict[str, Any]:
    """Seconds until Python was up, the model loaded and the first token there; memory at its peak."""
    start = time.time()
    command = [sys.executable, "-m", "hightide.tools.bench.first_token", str(model), *([device] if device else [])]
    child = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if child.returncode:
        said = child.stderr.strip().splitlines() or ["it said nothing"]
        raise HightideError(f"a process that loads {model.name} failed: {said[-1]}")
    told: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    started, imported, loaded, first = (told.pop(name) for name in ("started", "imported", "loaded", "first"))
    return {
        "python_s": started - start,
        "import_s": imported - started,
        "load_s": loaded - imported,
        "first_token_s": first - loaded,
        "total_s": first - start,
        **told,
    }


def _child(model: str, device: str | None) -> None:
    started = time.time()
    from hightide.tools.bench.bench_engine import BenchEngine, prompt
    from hightide.tools.bench.machine import peak_host_bytes

    imported = time.time()
    engine = BenchEngine(Path(model), device=device)
    loaded = time.time()
    engine.prefill(prompt(PROMPT, engine.decoder.vocab_size))
    first = time.time()
    print(
        json.dumps(
            {
                "started": started,
                "imported": imported,
                "loaded": loaded,
                "first": first,
                "peak_host_bytes": peak_host_bytes(),
                "device_bytes": engine.session.device_bytes(),
            }
        )
    )


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
