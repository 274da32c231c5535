"""A torch module traced by torch.export: its inputs with their names and symbolic dims, and fresh copies of it."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import ExportError, InputError
from hightide.option_checks import shown
from hightide.tools.export.check_inputs import Level, random_like
from hightide.tools.export.dynamic_dims import DynamicDim, parse_dynamic, specs_in
from hightide.tools.export.module_call import ModuleCall, call_of, leaf_names
from hightide.tools.export.python_model import blamed
from hightide.tools.export.stages import stage

MORE_NAMES = "STUVWXYZABCDEFGHIJKLMNOPQR"  # for symbols that nobody named


@dataclass
class TracedModule:
    """The module in eval mode, and what torch.export made of it."""

    module: Any
    program: Any  # torch.export.ExportedProgram
    example: ModuleCall
    dims: list[tuple[Any, ...]]  # of the inputs: integers, and sympy expressions of symbols
    symbols: dict[str, Any]  # our name -> sympy's symbol
    ranges: dict[str, tuple[int, int]]
    stateful: bool  # a call changes its buffers

    def fresh(self) -> Any:
        return fresh_copy(self.module)

    @property
    def signature(self) -> str:
        """`(x: float32[B, S, 16]) -> float32[B, S, 8]`, with our names of the symbols."""
        signature, nodes = self.program.graph_signature, {node.name: node for node in self.program.graph.nodes}
        names = leaf_names(self.module, self.example)
        takes = [self._type(nodes[name].meta["val"]) for name in signature.user_inputs]
        gives = [self._type(nodes[name].meta["val"]) for name in signature.user_outputs if name in nodes]
        listed = ", ".join(f"{name}: {kind}" for name, kind in zip(names, takes, strict=True))
        return f"({listed}) -> {', '.join(gives) or 'nothing'}"

    def _type(self, value: Any) -> str:
        if not hasattr(value, "shape"):
            return "int64[]"
        named = {str(symbol): name for name, symbol in self.symbols.items()}
        dims = (re.sub(r"\w+", lambda word: named.get(word[0], word[0]), str(d)) for d in value.shape)
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(dims)}]"

    def call_at(self, level: Level, rng: np.random.Generator) -> ModuleCall:
        """A call with random inputs of these sizes."""
        import torch

        values = {self.symbols[name]: size for name, size in level.items()}
        made = []
        for example, dims in zip(self.example.leaves, self.dims, strict=True):
            live = [d if isinstance(d, int) else int(d.subs(values)) for d in dims]
            array = random_like(example.detach().numpy(), live, rng)
            made.append(torch.from_numpy(np.ascontiguousarray(array)))
        return self.example.with_leaves(made)


def trace(module: Any, inputs: Any, dynamic_shapes: Any) -> TracedModule:
    """`dynamic_shapes` as torch.export takes them, or texts such as `x:1=S<=128`."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InputError(f"a torch.nn.Module can be exported, not {shown(module)}")
    kept = fresh_copy(module).eval()
    example = call_of(kept, inputs)
    names = leaf_names(kept, example)
    asked: dict[str, dict[int, DynamicDim]] = {}
    texts = specs_in(dynamic_shapes)
    if texts is not None:
        parsed = parse_dynamic(texts)
        asked = parsed.of({name: tuple(leaf.shape) for name, leaf in zip(names, example.leaves, strict=True)})
        dynamic_shapes = _torch_shapes(kept, example, names, asked, parsed.ranges)
    with stage("export"), torch.no_grad():
        stateful = _changes_buffers(kept, example)
        traced = fresh_copy(kept)  # tracing may change buffers
        program = torch.export.export(
            traced, example.args, example.kwargs, dynamic_shapes=dynamic_shapes or None, strict=False
        )
        dims = _input_dims(program)
    known = _names_of_symbols(dims, names, asked, dynamic_shapes)
    ranges = {name: _range(name, program.range_constraints[symbol]) for name, symbol in known.items()}
    return TracedModule(kept, program, example, dims, known, ranges, stateful)


def fresh_copy(module: Any) -> Any:
    """A copy with buffers of its own; parameters, which no call changes, are shared."""
    return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})


def _changes_buffers(module: Any, example: ModuleCall) -> bool:
    """Whether a call changes the module. An error of the module itself is told as such, not as the tracer's."""
    call, eager = example.with_leaves([leaf.clone() for leaf in example.leaves]), fresh_copy(module)
    try:
        eager(*call.args, **call.kwargs)
    except Exception as error:
        name = type(module).__name__
        raise ExportError("export", f"{name} itself fails with the example inputs: {blamed(error)}") from error
    pairs = zip(module.buffers(), eager.buffers(), strict=True)
    return any(before.shape != after.shape or bool((before != after).any()) for before, after in pairs)


def _torch_shapes(
    module: Any,
    example: ModuleCall,
    names: Sequence[str],
    asked: Mapping[str, Mapping[int, DynamicDim]],
    ranges: Mapping[str, tuple[int, int]],
) -> dict[str, Any]:
    """What was asked for in torch's form: by the names of forward's arguments."""
    from torch.export import Dim
    from torch.utils._pytree import tree_flatten, tree_unflatten

    # Torch reads the name of a dim that it scales as a formula, in which S, N or E would be something of sympy's.
    scaled = {dim.symbol for dims in asked.values() for dim in dims.values() if dim.size != dim.symbol}
    named = {symbol: f"{symbol}_" if symbol in scaled else symbol for symbol in ranges}
    roots = {symbol: Dim(named[symbol], min=least, max=most) for symbol, (least, most) in ranges.items()}

    def size(dim: DynamicDim) -> Any:
        times = roots[dim.symbol] if dim.scale == 1 else dim.scale * roots[dim.symbol]
        return times + dim.offset if dim.offset else times

    left = iter(names)
    made = {}
    for name, value in inspect.signature(module.forward).bind(*example.args, **example.kwargs).arguments.items():
        leaves, form = tree_flatten(value)
        dims = [{axis: size(dim) for axis, dim in asked.get(next(left), {}).items()} for _ in leaves]
        made[name] = tree_unflatten(dims, form)
    return made


def _input_dims(program: Any) -> list[tuple[Any, ...]]:
    """Of the fake tensors that the inputs were traced with."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = [nodes[name].meta["val"] for name in program.graph_signature.user_inputs]
    return [tuple(d if isinstance(d, int) else d.node.expr for d in value.shape) for value in values]


def _names_of_symbols(
    dims: Sequence[Sequence[Any]],
    names: Sequence[str],
    asked: Mapping[str, Mapping[int, DynamicDim]],
    dynamic_shapes: Any,
) -> dict[str, Any]:
    """Our names, or those of torch's Dims, or S, T, U..."""
    found: dict[str, Any] = {}
    for number, (name, sizes) in enumerate(zip(names, dims, strict=True)):
        for axis, size in enumerate(sizes):
            for symbol in () if isinstance(size, int) else sorted(size.free_symbols, key=str):
                if symbol in found.values():
                    continue
                dim = asked.get(name, {}).get(axis)
                given = dim.symbol if dim is not None else _dim_name(dynamic_shapes, number, name, axis)
                free = (n for n in (given, *MORE_NAMES, str(symbol)) if n and n not in found)
                found[next(free)] = symbol
    return found


def _dim_name(dynamic_shapes: Any, number: int, name: str, axis: int) -> str:
    """Of a torch Dim, where it is easily found."""
    try:
        shape = dynamic_shapes[name] if isinstance(dynamic_shapes, dict) else dynamic_shapes[number]
        dim = shape[axis]
        named = str(getattr(dim, "root", dim).__name__)
    except (KeyError, IndexError, TypeError, AttributeError):
        return ""
    return named if named.isidentifier() else ""


def _range(name: str, bounds: Any) -> tuple[int, int]:
    try:
        least, most = int(bounds.lower), int(bounds.upper)
    except (OverflowError, TypeError, ValueError, AttributeError):  # sympy's infinity is no int
        most = 1 << 62
    if most >= 1 << 31:
        raise ExportError("export", f"{name} has no largest size, and memory is planned for one: give its Dim a max")
    return max(1, least), most
