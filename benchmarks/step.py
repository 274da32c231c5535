"""Host time of a steady decode step, and of a change of level, on a 16-layer graph.

The same list of dispatches goes through hightide's recorder and through wgpu-py's classes, in turns, in
one process. Only host time counts: the GPU's own work is waited for in between. A thread of hightide's
encodes a step that repeats while the GPU works on the one before, so its time is in two parts. Figures
are medians (the thread's a mean); trust the ratio, the machine may be busy.

Last comes an answer of a model with SmolLM2's layers, narrow, so that a software adapter leaves the CPU's
caches to the host, as a GPU does: CPU time of the thread that asks for tokens, from the text of one to the next.
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
from peerbench.random_llama import RandomLlama, random_llama

from hightide.gpu.device import find_adapter, open_device
from hightide.gpu.encoding import seconds_ahead
from hightide.graph.symbols import evaluate
from hightide.llm.llm import LLM
from hightide.runtime.gpu_session import GpuSession, Ticket

LAYERS, ROUNDS = 16, 200
NARROW = RandomLlama(dim=64, layers=30, heads=2, kv_heads=1, ffn=128, vocab=512, context=512)


def main() -> None:
    device = open_device(find_adapter(None))
    graph = llama_graph(dim=64, layers=LAYERS, heads=4, kv_heads=2, hidden=96, vocab=160, max_tokens=64, context=128)
    session = GpuSession(graph, device, dynamic=[True, False])
    tokens, position = np.zeros((1, 1), np.int32), np.array([5], np.int32)
    given = [tokens, position]
    session.run(given)
    sample = session.launch(given)
    session.collect(sample)
    dispatches = len(sample.recording.commands)

    recorder, recording = session.recorder, sample.recording
    place = session.memory.region(session.graph.inputs[0])
    ours, theirs, whole = [], [], []
    ahead = 0.0
    for _ in range(ROUNDS):
        before = seconds_ahead()
        start = time.perf_counter()
        recorder.write(place.buffer, place.offset, tokens)
        submission = recorder.submit(recording, lambda groups: evaluate(groups, sample.env))
        submitted = time.perf_counter()
        device.wait()
        idle = time.perf_counter()
        recorder.read(recording.copies, submission)
        ours.append(submitted - start + time.perf_counter() - idle)
        ahead += seconds_ahead() - before

        start = time.perf_counter()
        class_step(session, sample, tokens)
        submitted = time.perf_counter()
        device.wait()
        idle = time.perf_counter()
        class_read(session, sample)
        theirs.append(submitted - start + time.perf_counter() - idle)

        start = time.perf_counter()
        ticket = session.launch(given)
        launched = time.perf_counter()
        device.wait()
        idle = time.perf_counter()
        session.collect(ticket)
        whole.append(launched - start + time.perf_counter() - idle)
    waits, classes = (statistics.median(samples) / dispatches * 1e6 for samples in (ours, theirs))
    hides = ahead / ROUNDS / dispatches * 1e6

    known = median(lambda: session.levels.find(((1, 1), (1,)), {}, refuse), ROUNDS)  # as a call does it, in its turn
    fresh = []
    for length in range(9, 60):
        start = time.perf_counter()
        session.find_level(((1, length), (1,)), {})
        fresh.append(time.perf_counter() - start)

    adapter = device.adapter
    print(f"{adapter.name}, {adapter.driver}, wgpu {wgpu.__version__}, Python {platform.python_version()}")
    print(f"{LAYERS} layers, {dispatches} dispatches, medians of {ROUNDS} rounds in turns")
    print(f"hightide:        {waits:6.2f} us a dispatch while the GPU waits (write, submit, read back)")
    print(f"                 {hides:6.2f} us a dispatch while it works (a thread that encodes the next step)")
    times = f"{classes / waits:.1f} times the first, {classes / (waits + hides):.1f} times both"
    print(f"wgpu-py classes: {classes:6.2f} us a dispatch: {times}")
    call = statistics.median(whole) / dispatches * 1e6
    print(f"a whole call:    {call:6.2f} us a dispatch while the GPU waits, checks included")
    print(f"a known level:   {known * 1e6:6.2f} us")
    print(f"a new level:     {statistics.median(fresh) * 1e3:6.2f} ms")
    mine, other = answer()
    print(f"an answer:       {mine * 1e3:6.2f} ms a token, {other * 1e3:.2f} of the thread that encodes")


def answer() -> tuple[float, float]:
    """Seconds of the asking and of the encoding thread for a token of a narrow model."""
    samples = []
    with LLM(random_llama(NARROW)) as llm:
        tokens = iter(llm.stream([1, 5, 9], max_tokens=ROUNDS, speculate=False))
        next(tokens)
        ahead = seconds_ahead()
        while True:
            start = time.thread_time()
            if next(tokens, None) is None:
                break
            samples.append(time.thread_time() - start)
    return statistics.median(samples), (seconds_ahead() - ahead) / len(samples)


def refuse(_: object) -> Any:
    raise AssertionError("the level is known")


def class_step(session: GpuSession, ticket: Ticket, tokens: np.ndarray) -> None:
    device = session.device.wgpu
    place = session.memory.region(session.graph.inputs[0])
    device.queue.write_buffer(place.buffer, place.offset, tokens)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    for command, (*_, x, y) in zip(ticket.recording.commands, ticket.recording.native, strict=True):
        compute.set_pipeline(command.pipeline.handle)
        compute.set_bind_group(0, command.group.handle, [command.params_offset])
        compute.dispatch_workgroups(x, y, 1)
    compute.end()
    device.queue.submit([encoder.finish()])


def class_read(session: GpuSession, ticket: Ticket) -> None:
    for copy in ticket.recording.copies:
        session.device.wgpu.queue.read_buffer(copy.source.buffer, copy.source.offset, copy.nbytes)


def median(work: Callable[[], object], rounds: int) -> float:
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


if __name__ == "__main__":
    main()
