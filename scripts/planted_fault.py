"""Runs a `hightide` command with a fault planted in a kernel: TEXT of every kernel that has it is INSTEAD.

python scripts/planted_fault.py TEXT INSTEAD verify model.pte
"""

from __future__ import annotations

import sys
from dataclasses import replace

from hightide.cli import main
from hightide.ops.kernel import Kernel
from hightide.wgsl.shader import Shader


def plant(text: str, instead: str) -> None:
    whole, made = Kernel.shader, {}

    def faulty(kernel: Kernel, halves: frozenset[str] = frozenset()) -> Shader:
        shader = whole(kernel, halves)
        if shader not in made:
            made[shader] = replace(shader, text=shader.text.replace(text, instead))
        return made[shader]

    Kernel.shader = faulty


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    text, instead, *command = sys.argv[1:]
    plant(text, instead)
    sys.argv = ["hightide", *command]
    main()
