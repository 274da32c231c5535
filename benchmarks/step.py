"""Host time of a steady decode step, and of a change of level, on a 16-layer graph.

The same list of dispatches goes through hightide's recorder and through wgpu-py's classes, in turns, in
one process. Only host time counts: the GPU's own work is waited for in between. hightide encodes a
step that repeats while the GPU works on the one before, so its time is in two parts. Figures are
medians; trust the ratio, the machine may be busy.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import wgpu
from llama_graph import llama_graph

from hightide.gpu.device import find_adapter, open_device
from hightide.session import GpuSession, ReadyPlan

LAYERS, ROUNDS = 16, 200


def main() -> None:
    device = open_device(find_adapter(None))
    graph = llama_graph(dim=64, layers=LAYERS, heads=4, kv_heads=2, hidden=96, vocab=160, max_tokens=64, context=128)
    session = GpuSession(graph, device, dynamic=[True, False])
    tokens, position = np.zeros((1, 1), np.int32), np.array([5], np.int32)
    session.run([tokens, position])
    _, ready, env = session._ready([tokens, position])
    dispatches = len(ready.recording.commands)

    raw, ahead, classes = [], [], []
    for _ in range(ROUNDS):
        raw.append(timed_step(device, lambda: raw_step(session, ready, tokens), lambda: raw_read(session, ready)))
        start = time.perf_counter()
        session._recorder.encode_ahead(ready.recording, env)
        ahead.append(time.perf_counter() - start)
        classes.append(
            timed_step(device, lambda: class_step(session, ready, tokens), lambda: class_read(session, ready))
        )
    ours, hidden, theirs = (statistics.median(samples) / dispatches * 1e6 for samples in (raw, ahead, classes))

    known = median(lambda: session.levels.find(((1, 1), (1,)), {}), ROUNDS)
    fresh = []
    for length in range(9, 60):
        start = time.perf_counter()
        session.levels.find(((1, length), (1,)), {})
        fresh.append(time.perf_counter() - start)

    adapter = device.adapter
    print(f"{adapter.name}, {adapter.driver}, wgpu {wgpu.__version__}, Python {platform.python_version()}")
    print(f"{LAYERS} layers, {dispatches} dispatches, medians of {ROUNDS} rounds in turns")
    print(f"hightide:        {ours:6.2f} us a dispatch while the GPU waits (write, submit, read back)")
    print(f"                 {hidden:6.2f} us a dispatch while it works (encoding the next step)")
    times = f"{theirs / ours:.1f} times the first, {theirs / (ours + hidden):.1f} times both"
    print(f"wgpu-py classes: {theirs:6.2f} us a dispatch: {times}")
    print(f"a known level:   {known * 1e6:6.2f} us")
    print(f"a new level:     {statistics.median(fresh) * 1e3:6.2f} ms")


def timed_step(device: Any, step: Callable[[], None], read: Callable[[], object]) -> float:
    """Seconds of host work: the step up to the submit, then the read once the GPU is idle."""
    start = time.perf_counter()
    step()
    submitted = time.perf_counter()
    device.wgpu._poll_wait()
    idle = time.perf_counter()
    read()
    return submitted - start + time.perf_counter() - idle


def raw_step(session: GpuSession, ready: ReadyPlan, tokens: np.ndarray) -> None:
    session._recorder.write(session._own[session.graph.inputs[0]], 0, tokens)
    session._recorder.submit(ready.recording)


def raw_read(session: GpuSession, ready: ReadyPlan) -> None:
    session._recorder.read(ready.recording.copies)


def class_step(session: GpuSession, ready: ReadyPlan, tokens: np.ndarray) -> None:
    device = session.device.wgpu
    device.queue.write_buffer(session._own[session.graph.inputs[0]], 0, tokens)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    for command, (*_, x, y) in zip(ready.recording.commands, ready.recording.native, strict=True):
        compute.set_pipeline(command.pipeline.handle)
        compute.set_bind_group(0, command.group.handle, [command.params_offset])
        compute.dispatch_workgroups(x, y, 1)
    compute.end()
    device.queue.submit([encoder.finish()])


def class_read(session: GpuSession, ready: ReadyPlan) -> None:
    for copy in ready.recording.copies:
        session.device.wgpu.queue.read_buffer(copy.source, 0, copy.nbytes)


def median(work: Callable[[], object], rounds: int) -> float:
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


if __name__ == "__main__":
    main()
