"""Which replica gets a prompt: the one that has read its beginning, unless that one is much busier than others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from hightide.llm.page_pool import START, page_name
from hightide.llm.ragged_model import PAGE

MAX_PAGES = 1 << 16  # that are remembered of a replica: a million tokens, in about 10 MB
TOKENS_PER_ANSWER = 64  # a prefix of so many tokens outweighs one more answer that is under way
MAX_EXTRA_ANSWERS = 16  # that a prefix of any length outweighs


class Routing:
    """Remembers the prompts that each replica was given, page by page, as engines keep them."""

    def __init__(self, max_pages: int = MAX_PAGES) -> None:
        self._max_pages = max_pages
        self._pages: dict[str, OrderedDict[bytes, None]] = {}  # of each replica, the longest unused first
        self._turns: OrderedDict[str, None] = OrderedDict()  # replicas, the one that waits longest first

    def choose(self, prompt: Sequence[int], loads: Mapping[str, int], start: bytes = START) -> str:
        """One of the replicas in `loads`, which says how many answers each has under way.

        `start` names what comes before the prompt: with another one, pages of the same tokens are others.
        """
        names = list(_page_names(start, prompt))
        turns = {replica: turn for turn, replica in enumerate(self._turns)}

        def worth(replica: str) -> tuple[int, int, int]:
            known = self._known(replica, names) * PAGE
            extra = min(known // TOKENS_PER_ANSWER, MAX_EXTRA_ANSWERS)
            return extra - loads[replica], known, -turns.get(replica, -1)

        chosen = max(loads, key=worth)
        self._remember(chosen, names)
        return chosen

    def forget(self, replica: str) -> None:
        """Its engine is gone, and with it what it had read."""
        self._pages.pop(replica, None)

    def _known(self, replica: str, names: Sequence[bytes]) -> int:
        """How many pages of a prompt a replica has, from the first on."""
        pages = self._pages.get(replica, OrderedDict())
        return next((n for n, name in enumerate(names) if name not in pages), len(names))

    def _remember(self, replica: str, names: Sequence[bytes]) -> None:
        self._turns[replica] = None
        self._turns.move_to_end(replica)
        pages = self._pages.setdefault(replica, OrderedDict())
        for name in reversed(names):  # the end of a prompt is forgotten before its beginning
            pages[name] = None
            pages.move_to_end(name)
        while len(pages) > self._max_pages:
            pages.popitem(last=False)


def _page_names(name: bytes, prompt: Sequence[int]) -> Iterator[bytes]:
    for first in range(0, len(prompt) - PAGE + 1, PAGE):
        name = page_name(name, prompt[first : first + PAGE])
        yield name
