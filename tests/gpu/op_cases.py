"""The op cases. They lie beside the ops: add rows in `src/hightide/ops/<family>/cases.py`."""

from __future__ import annotations

from hightide.ops.case import CONTEXT, MAX, Case, Const, In, Pos, Size, all_cases, floats

CASES = all_cases()
__all__ = ["CASES", "CONTEXT", "MAX", "Case", "Const", "In", "Pos", "Size", "floats"]
