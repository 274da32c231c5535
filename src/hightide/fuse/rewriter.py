"""A graph while passes change it: who makes a value, who uses it, calls replaced by others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hightide.fuse.live_dims import KnownDims, LiveDims
from hightide.graph.blob import AnyBlob
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import Dims, ListValue, LiteralValue, TensorValue, Value
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of
from hightide.ops.binding import mutated_ids


class Rewriter:
    """Values keep their ids; calls that take the place of others stand where the last one stood."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: list[Value] = list(graph.values)
        self._at: list[list[OpCall]] = [[call] for call in graph.calls]
        self._maker: dict[int, OpCall] = {}
        self._users: dict[int, list[OpCall]] = {}
        self._outputs = frozenset(id for output in graph.outputs for id in (output, *self.items(output)))
        self._live = LiveDims(self.values)
        for call in graph.calls:
            self._enter(call)
        self._written = frozenset(self._root(id) for call in graph.calls for id in mutated_ids(call))

    # ---- looking

    def every_call(self) -> Iterator[OpCall]:
        """First to last; replacing while looking is fine."""
        for at in self._at:
            yield from list(at)

    def calls(self, *names: str) -> Iterator[OpCall]:
        return (call for call in self.every_call() if call.name in names)

    def is_output(self, id: int) -> bool:
        return id in self._outputs

    def maker(self, id: int) -> OpCall | None:
        return self._maker.get(id)

    def users(self, id: int) -> Sequence[OpCall]:
        """First to last."""
        return sorted(self._users.get(id, ()), key=self._place)

    def is_written(self, id: int) -> bool:
        """Whether some call writes to the memory of this value in place."""
        return self._root(id) in self._written

    def live_dims(self, id: int) -> KnownDims:
        """A tensor's dims as far as they are known at every level; see `live_dims.py`."""
        return self._live.of(id)

    def tensor(self, id: int) -> TensorValue:
        value = self.values[id]
        assert isinstance(value, TensorValue)
        return value

    def is_tensor(self, id: int) -> bool:
        return isinstance(self.values[id], TensorValue)

    def literal(self, id: int) -> Any:
        """A literal's value; NotImplemented, which equals no literal, for anything else."""
        value = self.values[id]
        return value.value if isinstance(value, LiteralValue) else NotImplemented

    def option(self, call: OpCall, name: str) -> Any:
        """The literal that a call has for an argument, or the op's default; NotImplemented for anything else."""
        argument = next(a for a in arguments_of(REGISTRY[call.name]) if a.name == name)
        found = self.literal(call.args[name]) if name in call.args else None
        return found if found is NotImplemented else argument.converted(found)

    def items(self, id: int) -> tuple[int, ...]:
        """A list's values, or the value itself."""
        value = self.values[id]
        return value.items if isinstance(value, ListValue) else (id,)

    def behind_views(self, id: int) -> tuple[int, list[OpCall]]:
        """What a value is a view of, and the calls of the views in between.

        A view of memory that is written to keeps what it saw, so there is nothing to be seen behind it.
        """
        return (id, []) if self.is_written(id) else self._behind(id)

    def _behind(self, id: int) -> tuple[int, list[OpCall]]:
        passed: list[OpCall] = []
        while (call := self.maker(id)) is not None and (viewed := REGISTRY[call.name].aliases):
            passed.append(call)
            id = call.args[viewed]
        return id, passed

    def _root(self, id: int) -> int:
        return self._behind(id)[0]

    # ---- changing

    def new_tensor(self, dims: Dims, dtype: str = "float32", constant: AnyBlob | None = None) -> int:
        return self._add(TensorValue(len(self.values), dims, dtype, dtype, constant))

    def new_literal(self, value: Any) -> int:
        return self._add(LiteralValue(len(self.values), value))

    def new_list(self, items: Sequence[int]) -> int:
        return self._add(ListValue(len(self.values), tuple(items)))

    def replace(self, old: Sequence[OpCall], new: Sequence[OpCall]) -> bool:
        """Put `new` where the last of `old` stands; False, with everything as it was, if that would change more.

        It would if somebody else needs what only `old` makes, or needs it before that place; if `new` needs what `old`
        makes; or if memory that `old` reads is written before that place.
        """
        old = list(dict.fromkeys(old))
        last = max(old, key=self._place)
        if not self._replaceable(old, new, last):
            return False
        index, place = self._place(last)
        self._at[index][place:place] = placed = [replace(call, index=index) for call in new]
        for call in old:
            self._at[call.index] = [other for other in self._at[call.index] if other is not call]
            self._leave(call)
        for call in placed:
            self._enter(call)
        return True

    def _replaceable(self, old: Sequence[OpCall], new: Sequence[OpCall], last: OpCall) -> bool:
        made = {id for call in old for id in self.items(call.out)}
        remade = {id for call in new for id in self.items(call.out)}
        others = [(id, user) for id in made for user in self.users(id) if user not in old]
        if any(id not in remade and self.is_output(id) for id in made):
            return False
        if any(id not in remade or self._place(user) < self._place(last) for id, user in others):
            return False
        defined = set[int]()
        for call in new:
            if any(id in made and id not in defined for id in self._reads(call)):
                return False
            defined.update(self.items(call.out))
        return not any(self._changes_before(call, last) for call in old if call is not last)

    def _changes_before(self, call: OpCall, last: OpCall) -> bool:
        """Whether memory that a call reads, or gives, is written between it and a later call."""
        touched = {self._root(id) for id in (*self._reads(call), *self.items(call.out))} & self._written
        if not touched:
            return False
        between = range(call.index, last.index + 1)
        writers = (writer for index in between for writer in self._at[index] if REGISTRY[writer.name].mutates)
        return any(
            self._place(call) < self._place(writer) < self._place(last)
            and not touched.isdisjoint(self._root(id) for id in mutated_ids(writer))
            for writer in writers
        )

    def _place(self, call: OpCall) -> tuple[int, int]:
        """Where a call stands; places compare as calls run."""
        return call.index, next(n for n, other in enumerate(self._at[call.index]) if other is call)

    def fold(self, call: OpCall, made: Mapping[int, tuple[AnyBlob, str]]) -> None:
        """Leave out a call whose outputs are these bytes, of the types that they are stored as."""
        for id, (blob, stored) in made.items():
            value = self.tensor(id)
            self.values[id] = replace(value, constant=blob, stored="" if stored == value.dtype else stored)
            self._live.fix(id)
        self._at[call.index] = [other for other in self._at[call.index] if other is not call]
        self._leave(call)

    def drop(self, id: int) -> None:
        """Leave out the call that makes a value, if nobody needs it."""
        maker = self.maker(id)
        if maker is not None and not any(self.users(made) for made in self.items(maker.out)):
            self.replace([maker], [])

    def rename(self, old: int, new: int) -> None:
        """Have every call that uses `old` use `new`."""
        for call in list(self.users(old)):
            args = dict(call.args)
            for name, id in call.args.items():
                if id == old:
                    args[name] = new
                elif old in (items := self.items(id)):
                    args[name] = self.new_list([new if item == old else item for item in items])
            self.replace([call], [replace(call, args=args)])

    def finish(self) -> Graph:
        """The graph without what nobody uses: calls are numbered anew, values keep their ids."""
        for at in reversed(self._at):
            for call in reversed(at):
                wanted = any(self.users(id) or self.is_output(id) for id in self.items(call.out))
                if not wanted and not REGISTRY[call.name].mutates:
                    at.remove(call)
                    self._leave(call)
        calls = tuple(replace(call, index=n) for n, call in enumerate(call for at in self._at for call in at))
        used = {id for call in calls for arg in (*call.args.values(), call.out) for id in (arg, *self.items(arg))}
        used |= {*self.graph.inputs, *self.graph.outputs}
        values = tuple(v if v.id in used else LiteralValue(v.id, None) for v in self.values)
        return Graph(values, calls, self.graph.inputs, self.graph.outputs)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return value.id

    def _reads(self, call: OpCall) -> dict[int, None]:
        return dict.fromkeys(id for arg in call.args.values() for id in self.items(arg))

    def _enter(self, call: OpCall) -> None:
        self._live.enter(call)
        for id in self.items(call.out):
            self._maker[id] = call
        for id in self._reads(call):
            self._users.setdefault(id, []).append(call)

    def _leave(self, call: OpCall) -> None:
        for id in self.items(call.out):
            if self._maker.get(id) is call:
                del self._maker[id]
        for id in self._reads(call):
            self._users[id] = [user for user in self._users[id] if user is not call]


def either_way(call: OpCall) -> tuple[tuple[int, int], tuple[int, int]]:
    """The operands of a sum or product, in both orders."""
    a, b = call.args["a"], call.args["b"]
    return (a, b), (b, a)
