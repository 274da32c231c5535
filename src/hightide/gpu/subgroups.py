"""How many lanes a subgroup has. What drivers report is the range that they could have (llvmpipe: 4 to 128)."""

from __future__ import annotations

import struct
from typing import Any

from hightide.wgsl.shader import FIRST_BINDING, shader


def subgroup_size(device: Any) -> int:
    """Measured on a wgpu device, by one small dispatch (3 ms on llvmpipe)."""
    buffer = device.create_buffer(size=4, usage="STORAGE|COPY_SRC")
    text = shader("hightide.gpu", "subgroups.wgsl", "subgroups", (), frozenset()).text
    module = device.create_shader_module(code=text)
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    entries = [{"binding": FIRST_BINDING, "resource": {"buffer": buffer, "offset": 0, "size": 4}}]
    encoder = device.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline)
    work.set_bind_group(0, device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
    work.dispatch_workgroups(1)
    work.end()
    device.queue.submit([encoder.finish()])
    (size,) = struct.unpack("<I", device.queue.read_buffer(buffer))
    return int(size)
