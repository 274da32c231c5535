"""Ops and kernels in the old form, adapted to the new one until they are converted. To be deleted."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from types import SimpleNamespace
from typing import Any, ClassVar

from hightide.ops import contract
from hightide.ops.contract import *  # noqa: F403
from hightide.ops.contract import REGISTRY, REQUIRED, LiveInt, Scratch, Tensor
from hightide.ops.legacy_halves import as_halves
from hightide.ops.legacy_unroll import unroll
from hightide.wgsl.shader import PARAMS_SIZE, Shader

Binding = Tensor | Scratch
MISSING: Any = SimpleNamespace(name="missing")
SYMINTS = """
@group(0) @binding(1) var<uniform> symints: array<vec4<i32>, 1024>;

fn live_int(value: i32, slot: i32) -> i32 {
    if (slot < 0) { return value; }
    return symints[slot >> 2u][slot & 3];
}
"""


@dataclass(frozen=True, eq=False)
class Kernel:
    name: str
    file: str
    defines: tuple[tuple[str, str], ...] = ()


def kernel(file: str, route: str = "", /, **defines: object) -> Kernel:
    name = route or file.rsplit("/", 1)[-1].removesuffix(".wgsl")
    return _kernel(name, file, tuple((key, str(defines[key])) for key in sorted(defines)))


@cache
def _kernel(name: str, file: str, defines: tuple[tuple[str, str], ...]) -> Kernel:
    return Kernel(name, file, defines)


class _Variant(contract.Kernel):
    def _make(self, halves):
        names = self.interface.binding_names
        text = as_halves(self.interface.text, [2 + n for n, name in enumerate(names) if name in halves])
        return Shader(self.name, text, self.interface, (("", 0),) * len(text.splitlines()))


class _Interface(SimpleNamespace):
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@cache
def _variant(k: Kernel, reads: int, writes: int) -> contract.Kernel:
    folder = resources.files("hightide.ops")
    body = Template(folder.joinpath(k.file).read_text()).substitute(dict(k.defines))
    helper = resources.files("hightide.wgsl").joinpath("groups.wgsl").read_text()
    live = "live_int(" in body
    text = helper + (SYMINTS if live else "") + unroll(body)
    read_names, write_names = tuple(f"r{n}" for n in range(reads)), tuple(f"w{n}" for n in range(writes))
    interface = _Interface(
        text=text,
        pack=_pack,
        live=live,
        reads=tuple(SimpleNamespace(scalar="", name=n) for n in read_names),
        writes=tuple(SimpleNamespace(scalar="", name=n) for n in write_names),
        read_names=read_names,
        write_names=write_names,
        binding_names=read_names + write_names,
        param_names=(),
        params=(),
        absent=frozenset(),
        file=k.file,
    )
    return _Variant(k.name, k.file, k.defines, interface)


def Dispatch(kernel, groups, params, reads, writes):
    return contract.Dispatch(_variant(kernel, len(reads), len(writes)), groups, params, tuple(reads), tuple(writes))


def _pack(params: Any) -> bytes:
    words = b""
    for param in params:
        if isinstance(param, tuple):
            words += b"\0" * (-len(words) % 16)
            words += struct.pack("<8I", *(p & 0xFFFFFFFF for p in param), *(0,) * (8 - len(param)))
        elif isinstance(param, float):
            words += struct.pack("<f", param)
        else:
            words += struct.pack("<I", param & 0xFFFFFFFF)
    assert len(words) <= PARAMS_SIZE
    return words.ljust(PARAMS_SIZE, b"\0")


def live_params(arg: int | LiveInt) -> tuple[int, int]:
    if isinstance(arg, LiveInt):
        return (arg.expr, -1) if isinstance(arg.expr, int) else (0, arg.slot)
    return arg, -1


class Op:
    view: ClassVar[bool] = False
    mutates: ClassVar[tuple[int, ...]] = ()

    def outputs(self, ctx, *args: Any):
        raise NotImplementedError

    def plan(self, ctx, *args: Any, out: Any):
        raise NotImplementedError

    def reference(self, *args: Any) -> Any:
        raise NotImplementedError


class SymIntOp(Op):
    def symint(self, ctx, *args: Any):
        raise NotImplementedError


def op(*names: str) -> Callable[[Any], Any]:
    def register(cls: Any) -> Any:
        add(cls(), *names)
        return cls

    return register


def add(instance: Op, *names: str) -> None:
    adapted = _adapted(instance)
    adapted.names = names
    for name in names:
        if name in REGISTRY:
            raise ValueError(f"{name} is registered twice")
        REGISTRY[name] = adapted


def _signature(instance: Op) -> list[tuple[str, Any]]:
    best: list[tuple[str, Any]] = []
    if hasattr(instance, "operands"):
        names = [*"abc"[: instance.operands], "alpha" if instance.operands > 1 else "approximate", "q"]
        return [*((name, MISSING) for name in names), *((f"arg{n}", MISSING) for n in range(len(names), 16))]
    methods = ["symint", "reference"] if isinstance(instance, SymIntOp) else ["plan", "outputs", "reference"]
    for method in methods:
        function = getattr(type(instance), method)
        if function in (getattr(Op, method, None), getattr(SymIntOp, method, None)):
            continue
        found = [
            (p.name, REQUIRED if p.default is p.empty else p.default)
            for p in inspect.signature(function).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in ("self", "ctx", "out")
        ]
        if len(found) > len(best):
            best = found
    return [*best, *((f"arg{n}", MISSING) for n in range(len(best), 16))]


def _adapted(instance: Op) -> type[contract.Op]:
    described = _signature(instance)
    names = [name for name, _ in described]
    base = contract.SymIntOp if isinstance(instance, SymIntOp) else contract.Op

    def positional(values: Any) -> list[Any]:
        found = [values.get(name, default) for name, default in described]
        while found and (found[-1] is MISSING or found[-1] is REQUIRED):
            found.pop()
        return [None if v is MISSING or v is REQUIRED else v for v in found]

    members: dict[str, Any] = {
        "__annotations__": dict.fromkeys(names, Any),
        "__doc__": type(instance).__doc__,
        "__module__": type(instance).__module__,
        "family": type(instance).__module__.split(".")[2],
        "aliases": names[0] if instance.view else "",
        "mutates": tuple(names[n] for n in instance.mutates),
        "evaluate": classmethod(lambda cls, arguments: instance.reference(*positional(arguments))),
        "reference": staticmethod(lambda **arguments: instance.reference(*positional(arguments))),
        **{name: default for name, default in described if default is not REQUIRED},
    }
    if isinstance(instance, SymIntOp):
        members["symint"] = lambda self, ctx: instance.symint(ctx, *positional(self.__dict__))
    else:
        members["outputs"] = lambda self, ctx: instance.outputs(ctx, *positional(self.__dict__))
        if type(instance).plan is not Op.plan:
            members["plan"] = lambda self, ctx, out: instance.plan(ctx, *positional(self.__dict__), out=out)
    return type(type(instance).__name__, (base,), members)
