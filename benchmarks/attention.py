"""Attention by CPU time on a software adapter: decoding beside a kernel that only reads K and V, and prefill.

All rounds run in turns in one process, because other work on the machine changes the speed of memory; figures are
medians of CPU time (llvmpipe's threads are this process's own). On a GPU use `hightide profile` instead: there a
process spends no time while the kernels run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from hightide.gpu.device import Device, find_adapter, open_device
from hightide.graph.graph import Graph
from hightide.ops.builder import GraphBuilder
from hightide.runtime.gpu_session import GpuSession

MODELS = {"SmolLM2 135M": (9, 3, 64), "Llama 3.2 1B": (32, 8, 64), "Qwen3 0.6B": (16, 8, 128)}
CONTEXTS = (128, 1024, 4096)
PREFILLS = (128, 512, 1024)
ROUNDS = 9
CALLS = 4  # of attention in one step, so that what a step costs around them weighs less

READ = """
@group(0) @binding(0) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let share = COUNTu / groups.x;
    var sum = vec4<f32>();
    for (var i = group.x * share + lane; i < (group.x + 1u) * share; i += 64u) { sum += k[i]; sum += v[i]; }
    out[group.x * 64u + lane] = sum;
}
"""


def main() -> None:
    choices = dict(pair.split("=") for pair in sys.argv[1:])  # attention.decode=split
    device = open_device(find_adapter(None))
    print(
        f"{device.adapter.name}, {device.adapter.driver}, CPU ms, medians of {ROUNDS} rounds in turns {choices or ''}"
    )
    for model, (heads, kv_heads, depth) in MODELS.items():
        session = GpuSession(
            attend_graph(heads, kv_heads, depth, max(PREFILLS), max(CONTEXTS)), device, choices=choices
        )
        print(f"\n{model}: {heads} heads, {kv_heads} of keys, of {depth}")
        for context in CONTEXTS:
            step, read = in_turns(step_at(session, 1, context - 1), reader(device, context * kv_heads * depth // 4))
            mib = context * kv_heads * depth * 8 / 2**20
            print(f"decode at {context:5} {step:8.2f}   read K and V, {mib:6.1f} MiB {read:7.2f}   {read / step:5.0%}")
        for tokens in PREFILLS:
            (whole,) = in_turns(step_at(session, tokens, 0))
            flops = 4 * heads * depth * tokens * (tokens + 1) / 2
            print(f"prefill of {tokens:4} {whole:8.2f}   {flops / whole / 1e6:6.1f} GFLOP/s of CPU time")


def attend_graph(heads: int, kv_heads: int, depth: int, max_tokens: int, context: int) -> Graph:
    """attend(q [1, S, heads, depth], input_pos [1]) over a cache of random keys and values, several times."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    q, input_pos = b.input((1, max_tokens, heads, depth)), b.input((1,), "int32")
    position = b.call("et_vk.select_as_symint.default", input_pos, 0, 0)
    k, v = (b.constant(rng.standard_normal((1, context, kv_heads, depth)).astype(np.float32)) for _ in range(2))
    for _ in range(CALLS):
        q = b.call("hightide.attend.default", q, k, v, position, True, None, 0, 0.0)
    return b.graph(q)


def step_at(session: GpuSession, tokens: int, position: int) -> Callable[[], object]:
    dims = session.graph.values[session.graph.inputs[0]].dims  # type: ignore[union-attr]
    q = np.random.default_rng(1).standard_normal((1, tokens, *dims[2:])).astype(np.float32)
    return lambda: session.run([q, np.array([position], np.int32)])


def reader(device: Device, count: int) -> Callable[[], object]:
    """Reads two buffers of `count` vec4s, in order."""
    gpu, groups = device.wgpu, 16
    buffers = [device.buffer(count * 16), device.buffer(count * 16), device.buffer(groups * 64 * 16)]
    module = gpu.create_shader_module(code=READ.replace("COUNT", str(count)))
    pipeline = gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    entries = [{"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size}} for n, b in enumerate(buffers)]
    bound = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)

    def run() -> None:
        encoder = gpu.create_command_encoder()
        work = encoder.begin_compute_pass()
        work.set_pipeline(pipeline)
        work.set_bind_group(0, bound)
        for _ in range(CALLS):
            work.dispatch_workgroups(groups)
        work.end()
        gpu.queue.submit([encoder.finish()])
        device.wait()

    return run


def in_turns(*works: Callable[[], object]) -> list[float]:
    """CPU ms of one call of each, medians."""
    samples: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for _ in range(ROUNDS):
        for work, taken in zip(works, samples, strict=True):
            start = time.process_time()
            work()
            taken.append((time.process_time() - start) * 1e3 / CALLS)
    return [statistics.median(taken) for taken in samples]


if __name__ == "__main__":
    main()
