"""Linears beside what their adapter can do: a GEMV beside reading its weights, a GEMM beside multiply-adds.

For each shape and type of weights: the time of one linear at M rows, by route; for M = 1 as a share of a kernel that
only reads the same bytes, in the same layout and order; for more rows as a share of the adapter's multiply-adds.
CPU time of this process (software adapters compute in it), else wall time; the least of several rounds, in turns.

    python benchmarks/linear.py [--types Q4,Q4_1] [--rows 1,8,128] [--choices linear.gemm=registers]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hightide.gpu.device import Device, find_adapter, open_device, whole
from hightide.gpu.limits import measure_limits
from hightide.gpu.pipelines import Pipelines
from hightide.graph.blob import Blob
from hightide.ops.blocks.layout import BLOCK_TYPES
from hightide.ops.builder import GraphBuilder
from hightide.planning.planner import Step
from hightide.runtime.gpu_session import GpuSession

SHAPES = ((2048, 8192), (576, 576), (576, 192), (576, 1536), (1536, 576), (576, 49152))  # (K, N)
GROUP = 32
ENOUGH_BYTES = 8 << 20  # of weights in one run: small linears are repeated, each with a weight of its own
READ = """
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let column = group.x * 32u + lane * 4u;
    let columns = min(vec4<u32>(column, column + 1u, column + 2u, column + 3u), vec4<u32>(params.n - 1u));
    var bits = vec4<u32>();
    var sum = vec4<f32>();
    for (var b = 0u; b < params.blocks; b++) {
        let b0 = open_block(columns.x, b); let b1 = open_block(columns.y, b);
        let b2 = open_block(columns.z, b); let b3 = open_block(columns.w, b);
        bits ^= b0.q ^ b1.q ^ b2.q ^ b3.q ^ b0.extra ^ b1.extra ^ b2.extra ^ b3.extra;
        let scales = four_scales(columns, b);
        sum += scales.run[0];
        $LEAST
    }
    out[column] = sum.x + sum.y + sum.z + sum.w + f32(bits.x ^ bits.y ^ bits.z ^ bits.w);
}
"""


@dataclass(frozen=True)
class Bench:
    """One shape: `copies` linears in a graph, each with its own weight."""

    session: GpuSession
    copies: int
    k: int
    n: int

    def step(self, m: int) -> tuple[list[np.ndarray], Step]:
        given = [np.full((m, self.k), 0.01, np.float32)]
        return given, self.session.level(given)[1].steps[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="Q4,Q4_1,Q8_0")
    parser.add_argument("--rows", default="1,2,4,8,128")
    parser.add_argument("--choices", default="")
    parser.add_argument("--shapes", default=",".join(f"{k}x{n}" for k, n in SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    device = open_device(find_adapter(None))
    choices = dict(pair.split("=") for pair in args.choices.split(",") if pair)
    rows = [int(m) for m in args.rows.split(",")]
    peak = measure_limits(device).fma_gflop_s
    print(f"{device.adapter.name}, {device.adapter.driver}; multiply-adds {peak:.1f} GFLOP/s on all threads")
    print(f"{'type':6} {'K':>5} {'N':>6} {'M':>4} {'route':16} {'ms':>8} {'GFLOP/s':>8}  share")
    for kind in args.types.split(","):
        for shape in args.shapes.split(","):
            k, n = map(int, shape.split("x"))
            report(build(device, kind, k, n, max(rows), choices), device, kind, rows, args.rounds)


def build(device: Device, kind: str, k: int, n: int, m: int, choices: dict[str, str]) -> Bench:
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input((m, k))
    bits = {"Q4": 4, "F32": 32}
    nbytes = n * k * bits[kind] // 8 if kind in bits else n * k // BLOCK_TYPES[kind].elements * BLOCK_TYPES[kind].bytes
    copies = max(1, ENOUGH_BYTES // nbytes)
    for _ in range(copies):
        if kind == "Q4":
            weight = b.constant(rng.integers(0, 256, (n, k // 2), dtype=np.uint8))
            out = b.call(
                "et_vk.linear_q4gsw.default", x, weight, b.constant(np.full((k // GROUP, n), 0.01, "f")), GROUP
            )
        elif kind == "F32":
            out = b.call("aten.linear.default", x, b.constant(rng.standard_normal((n, k), np.float32)))
        else:
            data = rng.integers(0, 60, nbytes, dtype=np.uint8).tobytes()
            out = b.call("aten.linear.default", x, b.stored((n, k), kind, Blob(data, 0, len(data))))
    return Bench(GpuSession(b.graph(out), device, choices=choices), copies, k, n)


def report(bench: Bench, device: Device, kind: str, rows: list[int], rounds: int) -> None:
    runs: dict[str, Callable[[], Any]] = {} if kind == "F32" else {"read": reader(bench, device)}
    for m in rows:
        given, _ = bench.step(m)
        ticket = bench.session.launch(given, want=[])
        bench.session.collect(ticket)
        runs[str(m)] = runner(bench.session, given)
    clock = time.process_time if device.traits.software else time.perf_counter
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            least[name] = min(least[name], (clock() - start) * 1e3 / bench.copies)
    flops = 2 * bench.k * bench.n
    peak = measure_limits(device).fma_gflop_s
    cores = (os.cpu_count() or 1) if device.traits.software else 1  # CPU time is that of all threads together
    if "read" in least:
        print(f"{kind:6} {bench.k:5} {bench.n:6} {'':4} {'reading only':16} {least['read']:8.3f}")
    for m in rows:
        route, ms = bench.step(m)[1].dispatch.kernel.name, least[str(m)]
        rate = m * flops / ms / 1e6
        share = (
            f"{least['read'] / ms:.0%} of reading"
            if m == 1 and "read" in least
            else f"{rate * cores / peak:.0%} of multiply-adds"
        )
        print(f"{kind:6} {bench.k:5} {bench.n:6} {m:4} {route:16} {ms:8.3f} {rate:8.2f}  {share}", flush=True)


def runner(session: GpuSession, given: list[np.ndarray]) -> Callable[[], None]:
    def run() -> None:
        session.collect(session.launch(given, want=[]))
        session.device.wait()

    return run


def reader(bench: Bench, device: Device) -> Callable[[], None]:
    """The kernel that only reads: the declarations of the linear's own kernel, and another `main`."""
    dispatch = bench.step(1)[1].dispatch
    session, gpu, shader = bench.session, device.wgpu, dispatch.kernel.shader()
    declarations, own = shader.text.split("@compute", 1)
    text = declarations + READ.replace("$LEAST", "sum += scales.least;" if "scales.least" in own else "")
    pipelines = Pipelines(device)
    pipeline = pipelines.get(replace(shader, text=text, origins=(("", 0),) * len(text.splitlines())))
    params = gpu.create_buffer_with_data(data=shader.interface.pack(dispatch.params), usage="UNIFORM")
    out = device.buffer(bench.n * 4 + 256)
    groups = []
    for other in session.level(bench.step(1)[0])[1].steps:
        regions = [*(session.memory.region(t.value.id) for t in other.dispatch.reads), whole(out)]
        groups.append(pipelines.bind(pipeline, params, None, regions).handle)

    def run() -> None:
        encoder = gpu.create_command_encoder()
        work = encoder.begin_compute_pass()
        work.set_pipeline(pipeline.handle)
        for group in groups:
            work.set_bind_group(0, group, [0])
            work.dispatch_workgroups(-(-bench.n // 32))
        work.end()
        gpu.queue.submit([encoder.finish()])
        device.wait()

    run()
    return run


if __name__ == "__main__":
    main()
