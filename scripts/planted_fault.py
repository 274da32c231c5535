"""Runs a `hightide` command with a fault planted in a kernel: TEXT of every kernel that has it is INSTEAD.

python scripts/planted_fault.py TEXT INSTEAD verify model.pte
"""

from __future__ import annotations

import sys
from dataclasses import replace

from hightide.cli import main
from hightide.ops.kernel import Kernel
from hightide.wgsl.shader import Shader


def plant(text: str, instead: str) -> list[str]:
    """The names of the kernels that have it, as they are made."""
    whole, made, found = Kernel.shader, {}, []

    def faulty(kernel: Kernel, halves: frozenset[str] = frozenset()) -> Shader:
        shader = whole(kernel, halves)
        if shader not in made:
            made[shader] = replace(shader, text=shader.text.replace(text, instead))
            if text in shader.text:
                found.append(shader.name)
        return made[shader]

    Kernel.shader = faulty
    return found


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    text, instead, *command = sys.argv[1:]
    found = plant(text, instead)
    sys.argv = ["hightide", *command]
    try:
        main()
    finally:
        if not found:
            sys.exit(f"no kernel of this command has {text!r}")
