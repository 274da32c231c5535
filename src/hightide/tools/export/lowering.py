"""A traced module as the bytes of a `.pte` program, lowered for Vulkan/WebGPU."""

from __future__ import annotations

from typing import Any

from hightide.errors import ExportError
from hightide.tools.export.stages import stage
from hightide.tools.export.traced_module import TracedModule

METHOD = "forward"


def lowered(traced: TracedModule, fp16: bool) -> bytes:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    # Of ops that its own runtime cannot resize, the exporter leaves those with live dims outside; hightide joins them.
    options = {"require_dynamic_shapes": bool(traced.ranges), "alias_buffer_mutations": True}
    with stage("partition"):
        edge = to_edge_transform_and_lower(
            {METHOD: traced.program},
            partitioner=[VulkanPartitioner(options | ({"force_fp16": True} if fp16 else {}))],
            compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
        )
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
        return bytes(edge.to_executorch(ExecutorchBackendConfig(passes=passes)).buffer)


def _first_values(module: Any, signature: Any) -> list[str]:
    """Buffers outside of delegates whose first value the program has to keep: it makes the others 0."""
    values = dict(module.named_buffers())
    changed = {name for name in signature.buffers_to_mutate.values() if name in values and values[name].any()}
    return [placeholder for placeholder, name in signature.inputs_to_buffers.items() if name in changed]
