"""Runs a `hightide` command with a fault planted in a kernel: TEXT of every kernel that has it is INSTEAD.

python scripts/planted_fault.py TEXT INSTEAD verify model.pte
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hightide.cli import main
from hightide.gpu import pipelines
from hightide.ops.contract import Kernel


def plant(text: str, instead: str) -> None:
    source = pipelines.shader_source

    def faulty(kernel: Kernel, halves: Sequence[int] = ()) -> str:
        return source(kernel, halves).replace(text, instead)

    pipelines.shader_source = faulty


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    text, instead, *command = sys.argv[1:]
    plant(text, instead)
    sys.argv = ["hightide", *command]
    main()
