"""Which kernels were found right or wrong on an adapter: kept in the cache folder, by adapter, driver and version."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from hightide.gpu import measurements
from hightide.gpu.device import Adapter
from hightide.runtime.need import Need

FILE = "verdicts.json"


@dataclass(frozen=True)
class Wrong:
    """An op whose kernels give wrong answers on an adapter."""

    op: str
    routes: str  # the kernels' names
    problem: str

    def __str__(self) -> str:
        return f"{self.op} with {self.routes}: {self.problem}"


class Verdicts:
    """The verdicts on one adapter: `right` and `unproven` needs by their keys, `wrong` ones with what is wrong.

    Unproven is what has no small check; it is noted so that none is looked for again.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.key = measurements.adapter_key(adapter)
        self.right, self.unproven, self.wrong = _read(measurements.load(FILE).get(self.key))

    def known(self, need: Need) -> bool:
        return need.key in self.right or need.key in self.wrong or need.key in self.unproven

    def of(self, needs: Iterable[Need]) -> list[tuple[Need, Wrong]]:
        """Those that are wrong."""
        return [(need, self.wrong[need.key]) for need in needs if self.wrong and need.key in self.wrong]

    def note(self, need: Need, problem: str | None) -> None:
        """A verdict: right with "", wrong with what is wrong, unproven with None."""
        for kept in (self.right, self.unproven):
            kept.discard(need.key)
        self.wrong.pop(need.key, None)
        if problem:
            self.wrong[need.key] = Wrong(need.op, need.routes, problem)
        else:
            (self.unproven if problem is None else self.right).add(need.key)

    def save(self) -> None:
        """Add them to the file, with what other processes found meanwhile; this process's verdicts win."""
        entries = measurements.load(FILE)
        right, unproven, wrong = _read(entries.get(self.key))
        mine = self.right | self.unproven | self.wrong.keys()
        self.right |= right - mine
        self.unproven |= unproven - mine
        self.wrong |= {key: one for key, one in wrong.items() if key not in mine}
        measurements.save(FILE, {**entries, self.key: self._as_json()})

    def forget(self) -> None:
        """Drop the adapter's verdicts, here and in the file."""
        self.right, self.unproven, self.wrong = set(), set(), {}
        entries = measurements.load(FILE)
        if entries.pop(self.key, None) is not None:
            measurements.save(FILE, entries)

    def _as_json(self) -> dict[str, Any]:
        wrong = {key: asdict(one) for key, one in sorted(self.wrong.items())}
        return {"wrong": wrong, "right": sorted(self.right), "unproven": sorted(self.unproven)}


def _read(entry: Any) -> tuple[set[str], set[str], dict[str, Wrong]]:
    """What the file has of an adapter: right, unproven, wrong; a damaged entry has nothing."""
    with suppress(TypeError, KeyError, AttributeError):
        right, unproven = ({str(key) for key in entry[name]} for name in ("right", "unproven"))
        wrong = {
            str(key): Wrong(str(one["op"]), str(one["routes"]), str(one["problem"]))
            for key, one in entry["wrong"].items()
        }
        return right, unproven, wrong
    return set(), set(), {}
