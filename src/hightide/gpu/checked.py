"""Commands through wgpu's classes, which check every call: slow, for debugging and for single ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from hightide.errors import DeviceError
from hightide.gpu.device import Device
from hightide.gpu.native import raising
from hightide.gpu.recording import Command, Recording, Watch


def run_checked(device: Device, commands: Iterable[tuple[Command, Sequence[int]]], label: str = "") -> None:
    """Run commands, each over its grid, in one pass and one submit."""
    with raising():
        encoder = device.wgpu.create_command_encoder(label=label)
        compute = encoder.begin_compute_pass(label=label)
        for command, (x, y) in commands:
            compute.set_pipeline(command.pipeline.handle)
            compute.set_bind_group(0, command.group.handle, [command.params_offset])
            compute.dispatch_workgroups(x, y, 1)
        compute.end()
        device.wgpu.queue.submit([encoder.finish()])


def run_watched(device: Device, recording: Recording, watch: Watch, readback: Any) -> None:
    """Run a recording one dispatch at a time, with `watch` told of each call: an error names the call and dispatch."""
    sized = zip(recording.commands, (entry[3:] for entry in recording.native), strict=True)
    for call, group in groupby(sized, lambda pair: pair[0].call):
        dispatches = list(group)
        watch.before(call)
        for n, (command, grid) in enumerate(dispatches, 1):
            try:
                run_checked(device, [(command, grid)], command.label)
            except DeviceError as error:
                which = f" (dispatch {n} of {len(dispatches)})" if len(dispatches) > 1 else ""
                raise DeviceError(f"{command.label}{which}: {error}") from None
        watch.after(call)
    with raising():
        encoder = device.wgpu.create_command_encoder()
        for c in recording.copies:
            target = readback if c.target is None else c.target
            encoder.copy_buffer_to_buffer(c.source.buffer, c.source.offset, target, c.offset, c.nbytes)
        device.wgpu.queue.submit([encoder.finish()])
