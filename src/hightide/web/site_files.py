"""The files around an export: the engine's JavaScript, and for a language model the chat page."""

from __future__ import annotations

import shutil
from pathlib import Path

ENGINE = Path(__file__).parent / "js"
CHAT_PAGE = Path(__file__).parents[1] / "chat_page"
WEB_PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {".html", ".css", ".js", ".mjs", ".svg", ".LICENSE"}


def copy_engine(folder: Path) -> list[str]:
    """`hightide.js`, and what it imports; the names of the files."""
    made = _copy_all(ENGINE, folder / "engine")
    (folder / "hightide.js").write_text('export * from "./engine/hightide.js";\n', "utf-8")
    return ["hightide.js", *(f"engine/{name}" for name in made)]


def copy_page(folder: Path) -> list[str]:
    """The chat page with the engine in it; the names of the files."""
    made = _copy_all(CHAT_PAGE, folder / "page")
    (folder / "page" / "index.html").replace(folder / "index.html")
    shutil.copyfile(WEB_PAGE / "client.js", folder / "page" / "client.js")
    shutil.copyfile(WEB_PAGE / "sw.js", folder / "sw.js")
    return ["index.html", *(f"page/{name}" for name in made if name != "index.html")]


def _copy_all(source: Path, target: Path) -> list[str]:
    shutil.rmtree(target, ignore_errors=True)
    names = [path.relative_to(source).as_posix() for path in sorted(source.rglob("*")) if path.suffix in PAGE_TYPES]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    return names
