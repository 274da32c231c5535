"""The server's log on stderr: one line per request, as text or as JSON."""

from __future__ import annotations

import json
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

from hightide.errors import describe
from hightide.server.records import Record


@dataclass(frozen=True)
class Log:
    as_json: bool = False

    def note(self, text: str) -> None:
        """What happens to the server itself."""
        self._write({"event": text}, text)

    def mistake(self, error: Exception) -> None:
        """An error that the server should not have made, with where it was made."""
        trace = "".join(traceback.format_exception(error))
        self._write({"event": describe(error), "traceback": trace}, f"error in the server: {describe(error)}")
        if not self.as_json:
            print(trace, file=sys.stderr, flush=True)

    def request(self, record: Record) -> None:
        first = record.seconds_to_first_token
        fields: dict[str, Any] = {
            "request": record.id,
            "path": record.path,
            "status": record.status,
            "seconds": round(record.seconds, 3),
        }
        optional = {
            "model": record.model,
            "outcome": record.outcome,
            "user": record.user,
            "error": record.error,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "new_tokens": record.new_tokens,
            "seconds_to_first_token": None if first is None else round(first, 3),
        }
        fields |= {name: value for name, value in optional.items() if value}
        self._write(fields, _line(record))

    def _write(self, fields: dict[str, Any], text: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = json.dumps({"time": now, **fields}) if self.as_json else f"{now} {_printable(text)}"
        print(line, file=sys.stderr, flush=True)


def _line(record: Record) -> str:
    parts = [str(record.status), record.path, record.model, f"{record.seconds:.2f} s"]
    if record.prompt_tokens:
        parts.append(f"{record.prompt_tokens} + {record.new_tokens} tokens")
    if (first := record.seconds_to_first_token) is not None:
        parts.append(f"first after {first:.2f} s")
    parts += [record.outcome, record.error, record.id]
    return ", ".join(part for part in parts if part)


def _printable(text: str) -> str:
    """On one line, without what could do something to a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
