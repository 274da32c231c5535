"""A plain static host, with the faults that hosts and networks have."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Fault = Callable[[bytes], bytes]  # what is sent in place of the bytes asked for


@dataclass
class Host:
    url: str
    faults: dict[str, Fault] = field(default_factory=dict)  # by the beginning of a file's name, for its next request
    changes: dict[str, Fault] = field(default_factory=dict)  # by a file's name, for every request
    asked: list[tuple[str, str]] = field(default_factory=list)  # (path, range)
    refused: dict[str, int] = field(default_factory=dict)  # statuses, by a file's name
    down: bool = False


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, host: Host, **named: Any) -> None:
        self.host = host
        super().__init__(*args, **named)

    def do_GET(self) -> None:
        file = Path(self.translate_path(self.path))
        file = file / "index.html" if file.is_dir() else file
        given = self.headers.get("Range", "")
        self.host.asked.append((file.name, given))
        if self.host.down or file.name in self.host.refused or not file.is_file():
            self.send_error(503 if self.host.down else self.host.refused.get(file.name, 404))
            return
        data = self.host.changes.get(file.name, lambda same: same)(file.read_bytes())
        first = int(given.removeprefix("bytes=").rstrip("-")) if given else 0
        fault = next((name for name in self.host.faults if file.name.startswith(name)), None)
        body = data[first:]
        sent = self.host.faults.pop(fault)(body) if fault is not None else body
        self.send_response(206 if first else 200)
        self.send_header("Content-Type", self.guess_type(str(file)))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(sent)
        if len(sent) != len(body):
            self.wfile.flush()
            time.sleep(0.5)  # a browser drops what it has not handed on when a connection breaks
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def hosting(folder: Path) -> Iterator[Host]:
    host = Host("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, host=host, directory=str(folder)))
    host.url = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
