"""A traced module as the bytes of a `.pte` program, lowered for Vulkan/WebGPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hightide.errors import ExportError
from hightide.tools.export.stages import message_of, stage
from hightide.tools.export.traced_module import TracedModule

METHOD = "forward"


@dataclass(frozen=True)
class Lowered:
    data: bytes
    note: str  # what the partitioner could not do, if anything


def lowered(traced: TracedModule, fp16: bool) -> Lowered:
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    with stage("partition"):
        edge, note = _partitioned(traced, fp16)
        signature = edge.exported_program(METHOD).graph_signature
        if changed := sorted(set(signature.user_inputs_to_mutate.values())):
            raise ExportError(
                "partition",
                f"forward changes its input {', '.join(changed)} in place, which a program does not: "
                "work on a copy of it, or make it a buffer of the module",
            )
    with stage("lower"):
        kept = _first_values(traced.module, signature)
        passes = [InitializedMutableBufferPass(kept)] if kept else []
        return Lowered(bytes(edge.to_executorch(ExecutorchBackendConfig(passes=passes)).buffer), note)


def _partitioned(traced: TracedModule, fp16: bool) -> tuple[Any, str]:
    """The first way that works, and why the ones before it did not; if none does, the error of the first."""
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    first: Exception | None = None
    for partitioners, done in _ways(bool(traced.ranges), fp16):
        try:
            edge = to_edge_transform_and_lower(
                {METHOD: traced.program},
                partitioner=partitioners,
                compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
            )
        except Exception as error:  # whatever it meets
            first = first or error
            continue
        return edge, "" if first is None else f"the Vulkan partitioner failed, so {done}: {message_of(first, 200)}"
    assert first is not None
    raise first


def _ways(dynamic: bool, fp16: bool) -> Iterator[tuple[list[Any], str]]:
    """Partitioners, and what is different about them. Hightide runs all three; they differ for other runtimes."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    options = {"alias_buffer_mutations": True} | ({"force_fp16": True} if fp16 else {})
    if dynamic:
        yield [VulkanPartitioner(options | {"require_dynamic_shapes": True})], ""
    yield [VulkanPartitioner(options)], "ops that ExecuTorch itself cannot resize are delegated too"
    if not fp16:  # which only a delegate can hold
        yield [], "nothing is delegated"


def _first_values(module: Any, signature: Any) -> list[str]:
    """Buffers outside of delegates whose first value the program has to keep: it makes the others 0."""
    values = dict(module.named_buffers())
    changed = {name for name in signature.buffers_to_mutate.values() if name in values and values[name].any()}
    return [placeholder for placeholder, name in signature.inputs_to_buffers.items() if name in changed]
