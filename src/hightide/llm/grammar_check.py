"""Whether a grammar can be used, told by a process of its own: some take minutes or all memory to find out.

Run as a file, with the folder of llguidance as argument and the grammar on stdin. Imports nothing else.
"""

from __future__ import annotations

import re
import sys
from typing import Any

MAX_BYTES = 4 << 30  # of address space, of which the interpreter and the library take one
MAX_SPECIAL = 100
TOKEN_IDS = re.compile(r"<\[(?!1\]>)[\^0-9,*\- ]+\]>")  # special tokens by their ids


def main() -> None:
    """Writes what is wrong with the grammar; nothing if it is fine."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    sys.path.append(sys.argv[1])
    import llguidance

    sys.stdout.buffer.write(reason_against(sys.stdin.buffer.read().decode(), llguidance).encode())


def reason_against(grammar: str, llguidance: Any) -> str:
    """With a vocabulary of bytes: what special tokens a model has is not known here, so any stands for those named."""
    for _ in range(MAX_SPECIAL):
        matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0, limits=limits(llguidance))
        if not matcher.is_error():
            matcher.compute_bitmask()  # what is allowed first
        error: str = matcher.get_error()
        if named := re.search('unknown special token: "(.+?)"', error):
            grammar = grammar.replace(named[1], "<|tool|>")
        elif "Token range" in error and TOKEN_IDS.search(grammar):
            grammar = TOKEN_IDS.sub("<[1]>", grammar)
        else:
            return error
    return f"it names more than {MAX_SPECIAL} special tokens"


def limits(llguidance: Any) -> Any:
    """What an answer may cost, in llguidance's units: about 20 ms at its start, and 15 ms for a token."""
    return llguidance.LLParserLimits(
        max_items_in_row=2_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,  # of 1 to 2 KB
        max_grammar_size=500_000,
        verbose_errors=False,
    )


if __name__ == "__main__":
    main()
