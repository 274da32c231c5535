"""Every op that ExecuTorch's GPU backends have: a kernel here, and cases at live shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hightide.ops import REGISTRY
from hightide.ops.case import Case, all_cases
from hightide.ops.contract import SymIntOp, has_kernel

HERE = Path(__file__).parent
# What the C++ WebGPU backend registers.
WEBGPU = (HERE / "webgpu_ops.txt").read_text().split()

# What the Vulkan partitioner takes besides (executorch 1.5.1, backends/vulkan/op_registry.py), as it is serialized.
VULKAN = (HERE / "vulkan_ops.txt").read_text().split()

# The partitioner takes these too, and its passes remove them before anything is serialized:
# asserts with the comparisons that feed them, and the picking of one output of several.
NEVER_SERIALIZED = {"aten._assert_scalar", "aten.sym_constrain_range_for_size", "eq", "ge", "getitem", "gt", "le", "lt"}

WITHOUT_DIMS = {"aten.scalar_tensor.default"}

CASES = all_cases()


@pytest.mark.parametrize("name", [*WEBGPU, *VULKAN])
def test_op_has_a_kernel(name: str) -> None:
    assert name in REGISTRY and has_kernel(REGISTRY[name])


def test_what_is_never_serialized_is_not_here() -> None:
    assert not NEVER_SERIALIZED & REGISTRY.keys()


@pytest.mark.parametrize("name", [*WEBGPU, *VULKAN])
def test_op_has_cases_at_live_shapes(name: str) -> None:
    """Names of one op are aliases: a case under any of them covers all. SymInts have no shape."""
    op = REGISTRY[name]
    if issubclass(op, SymIntOp) or name in WITHOUT_DIMS:
        return
    cases = [case for case in CASES if REGISTRY[case.op] is op]
    assert any(live_dims(case) for case in cases)


def live_dims(case: Case) -> set[str]:
    """The letters of a case: dims that run at their max, at 1 and at odd sizes."""
    found: set[str] = set()

    def walk(arg: object) -> None:
        if isinstance(arg, list | tuple):
            for item in arg:
                walk(item)
        found.update(d for d in getattr(arg, "dims", ()) if isinstance(d, str))

    walk(case.args)
    return found
