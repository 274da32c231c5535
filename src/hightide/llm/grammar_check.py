"""Whether a grammar can be used, told by a process of its own: some take minutes or all memory to find out.

Run as a file, with the folder of llguidance as argument and the grammar on stdin. Imports nothing else.
"""

from __future__ import annotations

import sys
from typing import Any

MAX_BYTES = 4 << 30  # of address space, of which the interpreter and the library take one


def main() -> None:
    """Writes what is wrong with the grammar; nothing if it is fine."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    sys.path.append(sys.argv[1])
    import llguidance

    grammar, tokens = sys.stdin.buffer.read().decode(), llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokens, grammar, log_level=0, limits=limits(llguidance))
    if not matcher.is_error():
        matcher.compute_bitmask()  # what is allowed first
    sys.stdout.buffer.write(matcher.get_error().encode())


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
