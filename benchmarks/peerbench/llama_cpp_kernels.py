"""llama.cpp's Vulkan shaders for products, compiled for the same GPUs and judged by the same model as hightide's.

The SPIR-V lies in the library that `node-llama-cpp` brings, by name. Its specialisation constants are those that
llama.cpp gives on RDNA: subgroups of 64, and as many rows to a workgroup as it chooses there.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hightide.errors import HightideError
from hightide.folders import cache_folder
from hightide.formats.gguf import block_size
from hightide.graph.blob import Zeros
from hightide.ops.builder import GraphBuilder
from hightide.ops.choices import Choices
from hightide.ops.cost import Cost
from hightide.planning.costs import cost_of
from hightide.planning.levels import InputElements, graph_inputs
from hightide.planning.planner import Planner
from hightide.tools.kernels.judged import compiled
from hightide.tools.kernels.machine_code import MachineCode
from hightide.tools.kernels.null_device import compile_for
from hightide.tools.kernels.target_gpus import GPUS, TargetGpu
from hightide.tools.kernels.time_model import predict

WAVE = 64
SHAPES = ((2048, 2048), (2048, 16384), (8192, 2048))  # (K, N)
_SPEC_ID, _DECORATE, _SPEC_CONSTANT = 1, 71, 50
HEADS = (
    *("GPU", "K x N, type, rows", "engine", "registers", "waves"),
    *("loop: fma, other, loads, waits", "µs", "bound by", "of the limit"),
)


@dataclass(frozen=True)
class Shader:
    """One of llama.cpp's: its name, its specialisation constants in order, and what a workgroup computes."""

    name: str
    constants: tuple[int, ...]
    lanes: int
    rows: int  # of x
    columns: int


def shader_for(kind: str, m: int) -> Shader:
    """What llama.cpp takes for a product of `m` rows: 8-bit activations for many."""
    if m == 1:
        rows = 1 if kind == "Q8_0" else 2
        return Shader(f"mul_mat_vec_{kind.lower()}_f32_f32_subgroup_no_shmem", (WAVE, rows, 1), WAVE, 1, rows)
    tile = (128, 128, 128, 32, 2 * WAVE, 64, 2, 4, 4, 1, WAVE)
    return Shader(f"matmul_{kind.lower()}_q8_1", tile, 128, 128, 128)


def beside_llama_cpp(gpus: Sequence[TargetGpu]) -> Iterator[str]:
    """A table: products of hightide and of llama.cpp."""
    work = [(k, n, kind, 1) for kind in ("Q4_0", "Q4_K", "Q6_K", "Q8_0") for k, n in SHAPES]
    work += [(k, n, "Q4_0", 128) for k, n in SHAPES]
    shaders = list(dict.fromkeys(shader_for(kind, m) for _, _, kind, m in work))
    ours = [_planned(*one) for one in work]
    yield f"| {' | '.join(HEADS)} |"
    yield f"|{' --- |' * len(HEADS)}"
    for gpu in gpus:
        theirs = dict(zip(shaders, _compiled(shaders, gpu), strict=True))
        texts = list(dict.fromkeys(text for text, _, _ in ours))
        codes = dict(zip(texts, compiled(texts, gpu.family), strict=True))
        for (k, n, kind, m), (text, groups, cost) in zip(work, ours, strict=True):
            shader = shader_for(kind, m)
            their_groups = -(-n // shader.columns) * -(-m // shader.rows)
            what = f"{gpu.name} | {k} x {n}, {kind}, {m}"
            yield f"| {what} | hightide | {_judged(codes[text], gpu, groups, cost)} |"
            yield f"| {what} | llama.cpp | {_judged(theirs[shader], gpu, their_groups, cost)} |"


def _judged(code: MachineCode, gpu: TargetGpu, groups: int, cost: Cost) -> str:
    time, loop = predict(code, gpu, groups, cost), code.main_loop
    least = max(cost.bytes / gpu.bandwidth / 1e3, cost.flops / gpu.gflops / 1e3)
    counts = "none" if loop is None else ", ".join(f"{count:.3g}" for count in loop.brief)
    return f"{code.registers} | {code.waves} | {counts} | {time.busy:.1f} | {time.bound} | {least / time.busy:.0%}"


def _planned(k: int, n: int, kind: str, m: int) -> tuple[str, int, Cost]:
    """hightide's kernel for a product: its text, its workgroups, what it moves and multiplies."""
    elements, size = block_size(kind)
    b = GraphBuilder()
    x, weight = b.input((1, m, k)), b.stored((n, k), kind, Zeros(n * k // elements * size))
    graph = b.graph(b.call("aten.linear.default", x, weight, None))
    given = [np.zeros((1, m, k), np.float32)]
    choices = Choices(next(iter(GPUS.values())).traits)
    plan = Planner(graph, choices=choices).plan([given[0].shape], InputElements(given, graph_inputs(graph, None, None)))
    (step,) = plan.steps
    shader = step.dispatch.kernel.shader(step.dispatch.halves)
    assert isinstance(step.dispatch.groups, int)
    return shader.text, step.dispatch.groups, cost_of(step, {}, plan)


def _compiled(shaders: Sequence[Shader], gpu: TargetGpu) -> list[MachineCode]:
    found = _extracted([shader.name for shader in shaders])
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{n}.spirv" for n in range(len(shaders))]
        for file, shader in zip(files, shaders, strict=True):
            file.write_bytes(specialised(found[shader.name], shader.constants))
        codes = compile_for(gpu.family, files)
    for code, shader in zip(codes, shaders, strict=True):
        code.lanes = shader.lanes
    return codes


def specialised(data: bytes, constants: Sequence[int]) -> bytes:
    """SPIR-V with other defaults for its specialisation constants."""
    words = list(struct.unpack(f"<{len(data) // 4}I", data))
    ids: dict[int, int] = {}
    at = 5
    while at < len(words):
        count, instruction = words[at] >> 16, words[at] & 0xFFFF
        if instruction == _DECORATE and words[at + 2] == _SPEC_ID:
            ids[words[at + 1]] = words[at + 3]
        elif instruction == _SPEC_CONSTANT and ids.get(words[at + 2], len(constants)) < len(constants):
            words[at + 3] = constants[ids[words[at + 2]]]
        at += count
    return struct.pack(f"<{len(words)}I", *words)


def _extracted(names: Sequence[str]) -> dict[str, bytes]:
    """SPIR-V by name, out of the library's read-only data, which lies in the file where it lies in memory."""
    folder = cache_folder() / "peers" / "llama.cpp"
    library = next(folder.rglob("libggml-vulkan.so"), None)
    if library is None:
        raise HightideError("llama.cpp is needed for this: python benchmarks/compare.py --setup llama.cpp")
    symbols = subprocess.run(["nm", "-S", library], capture_output=True, text=True, check=True).stdout
    places = {
        name: (int(address, 16), int(size, 16))
        for address, size, _, name in (line.split() for line in symbols.splitlines() if len(line.split()) == 4)
    }
    data = library.read_bytes()
    found = {}
    for name in names:
        address, size = places[f"{name}_data"]
        found[name] = data[address : address + size]
        if found[name][:4] != b"\x03\x02\x23\x07":
            raise HightideError(f"{name} of {library.name} is not SPIR-V")
    return found
