"""A function of somebody's Python file that makes the model to export: `model.py:make_model`, `package.module:name`.

It takes nothing and returns `module, inputs`: a torch module and a tuple of example inputs. A third item is a dict of
more arguments of `hightide.export`: `dynamic_shapes`, `checks`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from hightide.errors import ExportError, InputError, describe
from hightide.option_checks import shown

OPTIONS = ("dynamic_shapes", "checks")
SOURCE = re.compile(r"(?P<module>.+):(?P<function>[A-Za-z_]\w*)")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class PythonModel:
    """What the function returned."""

    module: Any
    inputs: Any
    options: dict[str, Any] = field(default_factory=dict)


def names_python(source: str) -> bool:
    """Whether a command's argument is `model.py:make_model` or `package.module:make_model`, and not a model file."""
    if Path(source).is_file():
        return source.endswith(".py")
    found = SOURCE.fullmatch(source)
    where = source if found is None else found["module"]
    return where.endswith(".py") or (found is not None and DOTTED.fullmatch(where) is not None)


def make_python_model(source: str) -> PythonModel:
    """Imports the module and calls its function."""
    found = SOURCE.fullmatch(source)
    if found is None:
        raise InputError(f"{source} does not name the function that makes the model: write {source}:make_model")
    module, name = _imported(found["module"]), found["function"]
    function = getattr(module, name, None)
    if function is None:
        own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        has = f"it has {', '.join(own)}" if own else "it has no functions"
        raise InputError(f"{found['module']} has no function {name}; {has}")
    if not callable(function):
        raise InputError(f"{name} in {found['module']} must be a function, not {shown(function)}")
    return _checked(_called(function, f"{name}() of {found['module']}"), name)


def blamed(error: BaseException) -> str:
    """`ValueError: no such layer (model.py, line 12)`: the last line of the user's own code on the way."""
    packages = ("site-packages", "dist-packages")
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename != __file__ and f.filename.endswith(".py")]
    own = [f for f in own if not any(p in Path(f.filename).parts for p in packages) and "importlib" not in f.filename]
    own = [f for f in own if not Path(f.filename).is_relative_to(Path(__file__).parents[2])]
    return describe(error) + (f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else "")


def _imported(where: str) -> ModuleType:
    path = Path(where)
    if where.endswith(".py") and not path.is_file():
        raise InputError(f"{where}: no such file")
    folder = str(path.resolve().parent if where.endswith(".py") else Path.cwd())
    if folder not in sys.path:  # what lies beside it can be imported, as from a script
        sys.path.insert(0, folder)
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        name = f"{path.stem}_to_export" if path.stem in sys.modules else path.stem
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickles look it up by name
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{where}.".startswith(f"{error.name}."):
            raise InputError(f"there is no module {error.name}; it is looked for from {folder}") from None
        raise ExportError("import", f"importing {where} failed: {blamed(error)}") from error
    except Exception as error:  # somebody's code may raise anything
        raise ExportError("import", f"importing {where} failed: {blamed(error)}") from error
    return module


def _called(function: Callable[[], Any], what: str) -> Any:
    try:
        needed = [p.name for p in inspect.signature(function).parameters.values() if _is_needed(p)]
    except ValueError:  # of a builtin nothing is known
        needed = []
    if needed:
        raise InputError(f"{what} is called without arguments, but needs {', '.join(needed)}")
    try:
        return function()
    except Exception as error:
        raise ExportError("make", f"{what} failed: {blamed(error)}") from error


def _is_needed(parameter: inspect.Parameter) -> bool:
    many = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not many


def _checked(made: Any, name: str) -> PythonModel:
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        gave = f"{len(made)} items" if isinstance(made, tuple) else type(made).__name__
        raise InputError(f"{name} must return (module, inputs) or (module, inputs, options), not {gave}")
    module, inputs, options = made if len(made) == 3 else (*made, {})
    if not isinstance(options, dict) or not set(options) <= set(OPTIONS):
        given = ", ".join(map(str, options)) if isinstance(options, dict) else shown(options)
        raise InputError(f"the third item that {name} returns is a dict with {' and '.join(OPTIONS)}, not {given}")
    return PythonModel(module, inputs, options)
