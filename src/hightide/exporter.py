"""ExecuTorch's exporter, which only the extra `export` installs: whether it is there, and how to keep it quiet."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
import warnings
from collections.abc import Iterator

from hightide.errors import HightideError, ProgramError, UnsupportedError

PACKAGES = ("torch", "executorch")


def need_exporter() -> None:
    """UnsupportedError with the pip command, if a package is missing."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise UnsupportedError(f"exporting needs {' and '.join(missing)}; run pip install 'hightide[export]'")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The exporter prints and logs a lot: prints go to stderr, logs and warnings nowhere."""
    before = logging.root.manager.disable
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(before)


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Quiet; and whatever the exporter raises becomes a ProgramError of one line."""
    with quiet():
        try:
            yield
        except HightideError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ProgramError(f"ExecuTorch's exporter failed: {reason}") from error
