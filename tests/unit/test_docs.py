"""The documentation keeps its promises: a short README, links that lead somewhere, complete tables."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import hightide
from hightide.fuse import PASSES
from hightide.ops import REGISTRY
from hightide.ops.choices import CHOICES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = {  # files of a user
    *("config.json", "adapter_config.json", "convert_lora_to_gguf.py"),
    *("tokenizer.json", "tokenizer.model", "out.json", "trace.json"),
    *("manifest.json", "kernels.json.bin", "plan.json", "checks.json"),
}
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_readme_is_short() -> None:
    assert len(page("README.md").split()) <= 900


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), f"{path.name} links to {target}, which does not exist"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.read_text("utf-8")), f"{file.name} has no heading for #{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path: Path) -> None:
    """Such as `planning/planner.py`: from the root, from the package, or from `ops/`."""
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for name in re.findall(r"`([\w./-]+\.(?:py|wgsl|sh|toml|json|md))`", text):
        places = (ROOT, ROOT / "src" / "hightide", ROOT / "src" / "hightide" / "ops", ROOT / "tests" / "conformance")
        found = any((place / name).exists() for place in places) or (
            "/" not in name and any((ROOT / "src").rglob(name))
        )
        assert found or name in EXAMPLES, f"{path.name} names {name}, which does not exist"


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)", page("docs/api.md"), re.MULTILINE))
def test_the_api_reference_names_what_exists(name: str) -> None:
    found: Any = hightide
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)


def anchors(text: str) -> set[str]:
    """As Python-Markdown makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_every_environment_variable_is_in_the_table() -> None:
    listed = set(re.findall(r"^\| `(HIGHTIDE_\w+)`", page("docs/guide/environment.md"), re.MULTILINE))
    folders = [path for name in ("src", "scripts", "tests") for path in (ROOT / name).rglob("*")]
    sources = [path for path in folders if path.suffix in (".py", ".sh")]
    used = {name for path in sources for name in re.findall(r"\bHIGHTIDE_[A-Z0-9_]+\b", path.read_text("utf-8"))}
    assert used - {"HIGHTIDE_"} == listed


def test_every_choice_is_in_the_table() -> None:
    assert REGISTRY  # the ops declare their choices as they are imported
    text = page("docs/concepts/routes.md")
    for choice in CHOICES.values():
        options = ", ".join(f"`{option}`" for option in choice.options)
        assert f"| `{choice.name}` | {options} |" in text


def test_every_pass_is_in_the_table() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", page("docs/concepts/passes.md"), re.MULTILINE)
    assert listed == list(PASSES)


@pytest.mark.parametrize(
    "diff", re.findall(r"```diff\n(.*?)```", page("CONTRIBUTING.md"), re.DOTALL), ids=["op", "route"]
)
def test_the_worked_examples_still_apply(diff: str) -> None:
    if shutil.which("git") is None:
        pytest.skip("no git")
    done = subprocess.run(["git", "apply", "--check", "-"], input=diff, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_navigation() -> None:
    navigation = page("mkdocs.yml")
    for path in (ROOT / "docs").rglob("*.md"):
        assert f" {path.relative_to(ROOT / 'docs').as_posix()}\n" in navigation
