"""The pages that hold keys and values: who uses them, and which prefixes of tokens they hold.

A page is a fixed number of rows in the pool of every layer. Pages are counted: sequences with an equal prefix share
them. A full page is named by its tokens and the page before it, and keeps its name when nobody uses it any more, until
the page is needed for something else.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

START = b""  # the name of what comes before the first page


def page_name(before: bytes, tokens: Sequence[int]) -> bytes:
    """The name of a page of these tokens behind the page named `before`."""
    return blake2b(before + np.array(tokens, np.int32).tobytes(), digest_size=16).digest()


class PagePool:
    """`count` pages of `size` tokens each."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.sequences: weakref.WeakSet[PagedSequence] = weakref.WeakSet()
        self.copies: list[tuple[int, int]] = []  # pages (from, to) to be copied before the next step
        self.unwritten: dict[int, int] = {}  # pages that the next step writes to, from this row of theirs on
        self.clear()

    def clear(self) -> None:
        """Forget what all pages hold."""
        self._free = set(range(self.count))
        self._users = [0] * self.count
        self._names: dict[int, bytes] = {}
        self._named: dict[bytes, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()  # named, the longest unused first
        self.copies, self.unwritten = [], {}
        for sequence in self.sequences:
            sequence.pages, sequence.names, sequence.filled = [], [], 0

    @property
    def free(self) -> int:
        """Pages that can be taken."""
        return len(self._free) + len(self._unused)

    @property
    def used(self) -> int:
        return self.count - self.free

    @property
    def shared(self) -> int:
        """Pages with several users."""
        return sum(users > 1 for users in self._users)

    def users(self, page: int) -> int:
        return self._users[page]

    def take(self, after: int = -1) -> int:
        """A page for one user, if it can be the one that follows `after`; there must be a free one."""
        if after + 1 in self._free and after >= 0:
            page = after + 1
        elif self._free:
            page = self._apart() if after < 0 else min(self._free)
        else:
            page = after + 1 if after + 1 in self._unused else next(iter(self._unused))
            del self._unused[page]
            self._forget_name(page)
        self._free.discard(page)
        self._users[page] = 1
        return page

    def _apart(self) -> int:
        """A free page with many free ones behind it: what a sequence reads lies together."""
        if len(self._free) == self.count:
            return 0
        best, start, length = (0, min(self._free)), -1, 0  # (pages behind it, page)
        for page in (*sorted(self._free), self.count + 1):
            if page == start + length:
                length += 1
                continue
            best = max(best, ((length + 1) // 2, start + length // 2))
            start, length = page, 1
        return best[1]

    def share(self, page: int) -> None:
        """One more user."""
        self._unused.pop(page, None)
        self._users[page] += 1

    def release(self, page: int) -> None:
        """One user fewer."""
        self._users[page] -= 1
        if not self._users[page]:
            if page in self._names:
                self._unused[page] = None
            else:
                self._free.add(page)

    def find(self, name: bytes) -> int | None:
        return self._named.get(name)

    def give_name(self, page: int, name: bytes) -> None:
        if name not in self._named and page not in self._names:
            self._names[page], self._named[name] = name, page

    def own(self, page: int) -> bool:
        """Make a page its only user's to write: it loses its name. False if there are others."""
        if self._users[page] > 1:
            return False
        self._forget_name(page)
        return True

    def recount(self) -> None:
        """Count the users of all pages anew, after a call that was torn in between."""
        self._users = [0] * self.count
        for sequence in self.sequences:
            for page in sequence.pages:
                self._users[page] += 1
        self._names, self._named, self.copies, self.unwritten = {}, {}, [], {}
        self._unused.clear()
        self._free = {page for page in range(self.count) if not self._users[page]}

    def can_copy(self, page: int, rows: int) -> bool:
        """Whether the first `rows` of a page are there before the next step; a page that is shared whole can wait."""
        return rows >= self.size or rows <= self.unwritten.get(page, self.size)

    def names(self) -> Iterable[tuple[bytes, int]]:
        """All named pages."""
        return self._named.items()

    def _forget_name(self, page: int) -> None:
        name = self._names.pop(page, None)
        if name is not None:
            del self._named[name]


class PagedSequence:
    """The pages of one sequence; the first `filled` of its tokens have their keys and values there."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.pages: list[int] = []
        self.names: list[bytes] = []  # of its first pages, as far as they are full
        self.filled = 0
        self.start = START  # the name of what comes before its first page

    def restart(self, start: bytes) -> None:
        """Keys and values that others made in another way are of no use: from here on they are named by `start`."""
        if start != self.start:
            self.truncate(0)
            self.start = start

    def share_prefix(self, tokens: Sequence[int]) -> int:
        """Take the pages that hold the next of these tokens, if others have read them; one token at least is left.

        Gives how many tokens they hold. The last page may be shared whole: its last row is written again, to a copy.
        """
        before = self.filled
        for name in self.next_names(tokens):
            page = self.pool.find(name)
            if page is None or not self.pool.can_copy(page, len(tokens) - 1 - self.filled):
                break
            self.pool.share(page)
            self.pages.append(page)
            self.names.append(name)
            self.filled = min(self.filled + self.pool.size, len(tokens) - 1)
        return self.filled - before

    def next_names(self, tokens: Sequence[int]) -> Iterator[bytes]:
        """The names of the pages that would hold the next of these tokens, as `share_prefix` takes them."""
        size, first = self.pool.size, self.filled
        if first != len(self.pages) * size:  # within a page
            return
        name = self._name_of(first // size)
        while first < len(tokens) - 1 and first + size <= len(tokens):
            name = page_name(name, tokens[first : first + size])
            yield name
            first += size

    def needs(self, count: int) -> int:
        """Pages to be taken for `count` more tokens."""
        at = self.filled // self.pool.size
        copied = int(at < len(self.pages) and self.pool.users(self.pages[at]) > 1)
        return max(0, -(-(self.filled + count) // self.pool.size) - len(self.pages)) + copied

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens, in pages that no one else reads; `needs` says how many must be free."""
        pool, size = self.pool, self.pool.size
        at, inside = divmod(self.filled, size)
        if at < len(self.pages):
            if not pool.own(self.pages[at]):
                shared, self.pages[at] = self.pages[at], pool.take(self._last(at))
                if inside:
                    pool.copies.append((shared, self.pages[at]))
                pool.release(shared)
            del self.names[at:]
        while len(self.pages) * size < self.filled + count:
            self.pages.append(pool.take(self._last(len(self.pages))))
        pool.unwritten[self.pages[at]] = inside
        pool.unwritten.update(dict.fromkeys(self.pages[at + 1 : -(-(self.filled + count) // size)], 0))

    def name_pages(self, tokens: Sequence[int]) -> None:
        """Let others find the pages that are full of these tokens."""
        size = self.pool.size
        for at in range(len(self.names), min(self.filled, len(tokens)) // size):
            name = page_name(self._name_of(at), tokens[at * size : (at + 1) * size])
            self.names.append(name)
            self.pool.give_name(self.pages[at], name)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens."""
        size = self.pool.size
        self.filled = min(self.filled, length)
        pages = -(-self.filled // size)
        dropped, self.pages = self.pages[pages:], self.pages[:pages]
        del self.names[self.filled // size :]
        for page in reversed(dropped):
            self.pool.release(page)

    def fork(self) -> PagedSequence:
        """Another sequence with the same tokens in the same pages."""
        other = PagedSequence(self.pool)
        self.pool.sequences.add(other)
        for page in self.pages:
            self.pool.share(page)
        other.pages, other.names, other.filled = list(self.pages), list(self.names), self.filled
        other.start = self.start
        return other

    def _last(self, at: int) -> int:
        """The page before page `at`; -1 if that is the first."""
        return self.pages[at - 1] if at else -1

    def _name_of(self, count: int) -> bytes:
        return self.names[count - 1] if count else self.start
