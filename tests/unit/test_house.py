"""The rules of the house that no linter checks: imports at the top, other objects' private names left alone, few
parameters, each name used once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "hightide"
MODULES = sorted(SOURCES.rglob("*.py"))
# What may be missing, what only one system has.
OPTIONAL = {"torch", "executorch", "torchao", "igraph", "llguidance", "matplotlib", "prompt_toolkit", "ray", "vulkan"}
OPTIONAL |= {"PIL", "huggingface_hub", "resource", "readline"}
# wgpu takes long to import, and the NumPy references need none of it; how long imports take is what is measured there.
LATE = {"runtime/build.py", "tools/bench/first_token.py"}
MANY = 10
COMMANDS = SOURCES / "cli"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_imports_are_at_the_top(path: Path) -> None:
    """Except for packages that may be missing; a module that hides an import hides whom it knows."""
    if str(path.relative_to(SOURCES)) in LATE:
        return
    for function in functions(tree(path)):
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
            elif isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            else:
                continue
            assert names <= OPTIONAL, f"{path}:{node.lineno} imports {', '.join(names)} inside {function.name}"


def owner_is_exporter(owner: ast.expr) -> bool:
    """ExecuTorch's exporter has no public function that loads a model."""
    return isinstance(owner, ast.Name) and owner.id == "exporter"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_private_names_belong_to_their_owner(path: Path) -> None:
    """`other._name` and `from module import _name` reach into something that may change at any time."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hightide"):
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert not private, f"{path}:{node.lineno} imports {private[0]}"
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            owner = node.value
            own = (isinstance(owner, ast.Name) and owner.id in ("self", "cls")) or isinstance(owner, ast.Call)
            wgpu = path.name == "native.py" and path.parent.name == "gpu"  # the one place that knows wgpu's insides
            public = ast.unparse(node) in ("os._exit", "torch._check")  # documented, underscore and all
            assert own or wgpu or public or owner_is_exporter(owner), f"{path}:{node.lineno} uses {ast.unparse(node)}"


def test_few_functions_take_many_parameters() -> None:
    """References aside, whose parameters are the arguments of their op."""
    many = []
    for path in MODULES:
        for function in functions(tree(path)):
            arguments = function.args
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            if function.name != "reference" and len([n for n in names if n not in ("self", "cls")]) >= MANY:
                many.append(f"{path.relative_to(SOURCES)}:{function.name}")
    assert sorted(many) == ["llm/engine.py:__init__", "llm/llm.py:__init__"]  # the public options of both


@pytest.mark.xdist_group("house")
def test_groups_of_tests_stay_together(request: pytest.FixtureRequest) -> None:
    """What shares a model or a cluster runs in one process; a pytest that pytest-xdist does not know forgets that."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@house")


def test_class_names_are_used_once() -> None:
    names = Counter(
        node.name
        for path in MODULES
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and node.name[0] != "_"
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_module_names_are_used_once() -> None:
    """Except for those that each package has by convention: commands are named as their tool, cases as their family."""
    shared = {"__init__", "__main__", "cases"}
    names = Counter(p.stem for p in MODULES if p.parent != COMMANDS and p.stem not in shared)
    assert [name for name, count in names.items() if count > 1] == []
