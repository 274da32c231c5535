"""The page at `/`: the files of `hightide/chat_page`, which ask nothing of any other server."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

FOLDER = Path(__file__).parents[1] / "chat_page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}
FILES = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.suffix in TYPES}
HEADERS = {
    # What a model writes is sanitised; were something to slip through, it could still reach nobody.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


async def page_file(request: Request) -> Response:
    path = FILES.get(request.path_params.get("name", "index.html"))
    if path is None:
        return Response(status_code=404)
    return FileResponse(path, media_type=TYPES[path.suffix], headers=HEADERS)
