"""A mixture of experts beside a dense model of the active size: what a step costs.

Both are Llamas with random weights, and use as many of them for a token: `used` experts of HIDDEN columns in a layer,
or one of used * HIDDEN. The mixture has its routers on top. CPU time of this process (software adapters compute in it),
medians of rounds in turns in one run.

    python benchmarks/experts.py [--rows 1,128] [--type Q4_0] [--experts 32] [--used 4]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.gpu.device import find_adapter, open_device
from hightide.graph.blob import Blob
from hightide.llm.models import build_graph
from hightide.llm.models.model_builder import DYNAMIC, INPUTS
from hightide.ops.case import Blocks
from hightide.ops.sampling.sampling import SETTINGS
from hightide.runtime.gpu_session import GpuSession

WIDTH, HIDDEN, LAYERS, HEADS, VOCABULARY, CONTEXT, POSITION = 1024, 512, 2, 8, 4096, 512, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,128")
    parser.add_argument("--type", default="Q4_0")
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--used", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    device, rows = open_device(find_adapter(None)), [int(n) for n in args.rows.split(",")]
    sessions = {}
    for name, experts in (("dense", 0), ("experts", args.experts)):
        graph = build_graph(llama(args.type, experts, args.used), CONTEXT, max(rows))
        sessions[name] = GpuSession(graph, device, DYNAMIC, INPUTS)
    print(f"{device.adapter.name}, {device.adapter.driver}; {LAYERS} layers, width {WIDTH}, {args.type}")
    print(f"{args.used} of {args.experts} experts of {HIDDEN} columns; dense: {args.used * HIDDEN} columns")
    for count in rows:
        medians = step_times(sessions, count, args.rounds)
        ratio = medians["experts"] / medians["dense"]
        print(f"{count:4} rows: dense {medians['dense']:8.2f} ms, experts {medians['experts']:8.2f} ms, {ratio:.2f} x")


def llama(kind: str, experts: int, used: int) -> GgufFile:
    """A Llama with random weights, dense if there are no experts."""
    rng = np.random.default_rng(0)
    tensors: dict[str, GgufTensor] = {}

    def add(name: str, dims: tuple[int, ...], kind: str = kind) -> None:
        data = Blocks(kind, dims).make(rng)
        tensors[f"{name}.weight"] = GgufTensor(f"{name}.weight", kind, dims, Blob(data, 0, len(data)))

    add("token_embd", (VOCABULARY, WIDTH))
    add("output_norm", (WIDTH,), "F32")
    for n in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{n}.{name}", (WIDTH,), "F32")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{n}.{name}", (WIDTH, WIDTH))
        sides = {"gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
        for side, (rows, columns) in sides.items():
            if experts:
                add(f"blk.{n}.ffn_{side}_exps", (experts, rows, columns))
            else:
                more = (rows, columns * used) if side == "down" else (rows * used, columns)
                add(f"blk.{n}.ffn_{side}", more)
        if experts:
            add(f"blk.{n}.ffn_gate_inp", (experts, WIDTH), "F32")
    fields = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "attention.head_count": HEADS,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "expert_count": experts,
        "expert_used_count": used,
    }
    metadata = {"general.architecture": "llama", **{f"llama.{key}": value for key, value in fields.items()}}
    return GgufFile(Path("random.gguf"), metadata, tensors)


def step_times(sessions: dict[str, GpuSession], rows: int, rounds: int) -> dict[str, float]:
    """ms of CPU time; the first round, which compiles, does not count."""
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, (1, rows)).astype(np.int32)
    given = [tokens, np.array([POSITION], np.int32), np.array([1], np.int32), np.zeros(SETTINGS, np.float32)]
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for n in range(rounds + 1):
        for name, session in sessions.items():
            start = time.process_time()
            session.run(given)
            if n:
                times[name].append((time.process_time() - start) * 1000)
    return {name: statistics.median(values) for name, values in times.items()}


if __name__ == "__main__":
    main()
