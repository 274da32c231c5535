"""A graph while passes change it: who makes a value, who uses it, calls replaced by others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hightide.graph.blob import AnyBlob
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import Dims, ListValue, LiteralValue, TensorValue, Value
from hightide.ops import REGISTRY
from hightide.ops.arguments import arguments_of


class Rewriter:
    """Values keep their ids; calls that take the place of others stand where the last one stood."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: list[Value] = list(graph.values)
        self._at: list[list[OpCall]] = [[call] for call in graph.calls]
        self._maker: dict[int, OpCall] = {}
        self._users: dict[int, list[OpCall]] = {}
        self._outputs = frozenset(graph.outputs)
        for call in graph.calls:
            self._enter(call)

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
        return self._users.get(id, ())

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
        """What a value is a view of, and the calls of the views in between."""
        passed: list[OpCall] = []
        while (call := self.maker(id)) is not None and (viewed := REGISTRY[call.name].aliases):
            passed.append(call)
            id = call.args[viewed]
        return id, passed

    # ---- changing

    def new_tensor(self, dims: Dims, dtype: str = "float32", constant: AnyBlob | None = None) -> int:
        return self._add(TensorValue(len(self.values), dims, dtype, dtype, constant))

    def new_literal(self, value: Any) -> int:
        return self._add(LiteralValue(len(self.values), value))

    def new_list(self, items: Sequence[int]) -> int:
        return self._add(ListValue(len(self.values), tuple(items)))

    def replace(self, old: Sequence[OpCall], new: Sequence[OpCall]) -> bool:
        """Put `new` where the last of `old` stands, unless somebody else needs what only `old` makes.

        The arguments of `new` must be made before that place, or by each other in order.
        """
        remade = {id for call in new for id in self.items(call.out)}
        old = list(dict.fromkeys(old))
        for id in (id for call in old for id in self.items(call.out)):
            if id not in remade and (self.is_output(id) or any(user not in old for user in self.users(id))):
                return False
        last = max(call.index for call in old)
        place = next(n for n, call in enumerate(self._at[last]) if call in old)
        self._at[last][place:place] = placed = [replace(call, index=last) for call in new]
        for call in old:
            self._at[call.index] = [other for other in self._at[call.index] if other is not call]
            self._leave(call)
        for call in placed:
            self._enter(call)
        return True

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
