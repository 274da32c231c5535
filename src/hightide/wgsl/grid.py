"""Grids: a count of workgroups as WebGPU takes it. Kernels rejoin what is folded here (`groups.wgsl`)."""

from __future__ import annotations

from hightide.errors import InputError

GROUPS_PER_DIM = 65_535  # WebGPU's guaranteed maxComputeWorkgroupsPerDimension


def fold(groups: int) -> tuple[int, int]:
    """Workgroups as (x, y): a count past one dimension's limit spreads over two."""
    if groups <= GROUPS_PER_DIM:
        return groups, 1
    y = -(-groups // GROUPS_PER_DIM)
    if y > GROUPS_PER_DIM:
        raise InputError(f"{groups} workgroups are more than a WebGPU dispatch can have")
    return -(-groups // y), y
