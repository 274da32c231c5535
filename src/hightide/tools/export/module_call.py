"""What a torch module is called with: tensors by forward's own names, in the order of a program's inputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.option_checks import shown

TYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class ModuleCall:
    """What a module is called with; `leaves` are the tensors in it, in the order of the program's inputs."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]

    def with_leaves(self, leaves: Sequence[Any]) -> ModuleCall:
        from torch.utils._pytree import tree_flatten, tree_unflatten

        _, form = tree_flatten((self.args, self.kwargs))
        args, kwargs = tree_unflatten(list(leaves), form)
        return ModuleCall(args, kwargs, list(leaves))

    def arrays(self) -> list[np.ndarray]:
        return [leaf.detach().numpy() for leaf in self.leaves]


def call_of(module: Any, inputs: Any) -> ModuleCall:
    """Inputs as forward takes them: a tuple in its order, a dict by name, or one tensor."""
    import torch
    from torch.utils._pytree import tree_leaves

    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, tuple | dict):
        raise InputError(f"inputs must be a tuple of tensors, or a dict of them by name, not {shown(inputs)}")
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(
            f"the forward of {type(module).__name__} cannot be called with these inputs: {error}"
        ) from None
    call = ModuleCall(bound.args, bound.kwargs, tree_leaves((bound.args, bound.kwargs)))
    for name, leaf in zip(leaf_names(module, call), call.leaves, strict=True):
        if not isinstance(leaf, torch.Tensor):
            raise InputError(
                f"input {name} is {shown(leaf)}; a program takes tensors: make it one, or set it in the module"
            )
        if str(leaf.dtype).removeprefix("torch.") not in TYPES:
            raise InputError(f"input {name} is {leaf.dtype}; a program's inputs can be {', '.join(TYPES)}")
    return call


def leaf_names(module: Any, call: ModuleCall) -> list[str]:
    """Forward's own names; the tensors in a list or dict `d` are d_0, d_1 and so on."""
    from torch.utils._pytree import tree_leaves

    names = []
    for name, value in inspect.signature(module.forward).bind(*call.args, **call.kwargs).arguments.items():
        leaves = tree_leaves(value)
        names += [name] if len(leaves) == 1 and leaves[0] is value else [f"{name}_{n}" for n in range(len(leaves))]
    return names
