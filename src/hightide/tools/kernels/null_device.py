"""SPIR-V to machine code of a GPU that is not there: Mesa's RADV opens a null device for any family and compiles for
it, with the compiler that real GPUs get.

Run as `python -m hightide.tools.kernels.null_device` by `compile_for`; the driver reports on stderr.
"""

from __future__ import annotations

import math
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hightide.errors import HightideError
from hightide.tools.kernels.drivers import driver_file, run_module
from hightide.tools.kernels.machine_code import MachineCode, read_machine_code

_MARK = "@@ hightide"
_ENTRY_POINT, _EXECUTION_MODE, _DECORATE, _VARIABLE = 15, 16, 71, 59  # SPIR-V instructions
_LOCAL_SIZE, _BINDING, _SET, _UNIFORM = 17, 33, 34, 2


def compile_for(family: str, files: Sequence[Path]) -> list[MachineCode]:
    """The machine code of each file for a family that RADV knows."""
    check_package()
    changes = {
        "VK_DRIVER_FILES": driver_file("radeon", "RADV"),
        "RADV_FORCE_FAMILY": family,
        "RADV_DEBUG": "shaders,shaderstats,nocache",
        "XDG_RUNTIME_DIR": tempfile.gettempdir(),
    }
    said = run_module(__name__, list(map(str, files)), changes, f"RADV could not compile for {family}")
    reports = zip(said.split(_MARK)[1:], files, strict=True)
    return [read_machine_code(report, read_spirv(file.read_bytes()).lanes) for report, file in reports]


def check_package() -> None:
    if find_spec("vulkan") is None:
        raise HightideError("this needs the package vulkan: pip install 'hightide[kernels]'")


@dataclass(frozen=True)
class SpirvModule:
    entry: str
    buffers: list[tuple[int, int, bool]]  # (set, binding, whether it is a uniform one)
    lanes: int  # of a workgroup


def read_spirv(data: bytes) -> SpirvModule:
    words = struct.unpack(f"<{len(data) // 4}I", data)
    entry, lanes, at = "main", 1, 5
    places: dict[int, dict[int, int]] = {}
    classes: dict[int, int] = {}
    while at < len(words):
        count, instruction = words[at] >> 16, words[at] & 0xFFFF
        given = words[at + 1 : at + count]
        if instruction == _ENTRY_POINT:
            entry = struct.pack(f"<{len(given) - 2}I", *given[2:]).split(b"\0")[0].decode()
        elif instruction == _EXECUTION_MODE and given[1] == _LOCAL_SIZE:
            lanes = math.prod(given[2:])
        elif instruction == _DECORATE and given[1] in (_BINDING, _SET):
            places.setdefault(given[0], {})[given[1]] = given[2]
        elif instruction == _VARIABLE:
            classes[given[1]] = given[2]
        at += count
    found = [
        (place[_SET], place[_BINDING], classes.get(id) == _UNIFORM) for id, place in places.items() if len(place) == 2
    ]
    return SpirvModule(entry, sorted(found), lanes)


def _open(vk: Any) -> Any:
    """The null device, with what kernels may need."""
    application = vk.VkApplicationInfo(pApplicationName="hightide", apiVersion=vk.VK_MAKE_VERSION(1, 3, 0))
    instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application), None)
    gpu = vk.vkEnumeratePhysicalDevices(instance)[0]
    types = vk.VkPhysicalDeviceVulkan12Features(
        shaderFloat16=1,
        shaderInt8=1,
        vulkanMemoryModel=1,
        vulkanMemoryModelDeviceScope=1,
        shaderSubgroupExtendedTypes=1,
    )
    storage = vk.VkPhysicalDeviceVulkan11Features(
        storageBuffer16BitAccess=1, uniformAndStorageBuffer16BitAccess=1, pNext=types
    )
    queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=0, queueCount=1, pQueuePriorities=[1.0])
    features = vk.VkPhysicalDeviceFeatures(shaderInt64=1, shaderInt16=1)
    made = vk.VkDeviceCreateInfo(
        queueCreateInfoCount=1, pQueueCreateInfos=[queue], pNext=storage, pEnabledFeatures=features
    )
    return vk.vkCreateDevice(gpu, made, None)


def _compile(vk: Any, device: Any, data: bytes) -> None:
    read = read_spirv(data)
    stage = vk.VK_SHADER_STAGE_COMPUTE_BIT
    kinds = {True: vk.VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, False: vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER}
    layouts = []
    for number in range(max((buffer[0] for buffer in read.buffers), default=-1) + 1):
        slots = [
            vk.VkDescriptorSetLayoutBinding(
                binding=binding, descriptorType=kinds[uniform], descriptorCount=1, stageFlags=stage
            )
            for group, binding, uniform in read.buffers
            if group == number
        ]
        info = vk.VkDescriptorSetLayoutCreateInfo(bindingCount=len(slots), pBindings=slots)
        layouts.append(vk.vkCreateDescriptorSetLayout(device, info, None))
    pushed = [vk.VkPushConstantRange(stage, 0, 128)]
    info = vk.VkPipelineLayoutCreateInfo(
        setLayoutCount=len(layouts), pSetLayouts=layouts, pushConstantRangeCount=1, pPushConstantRanges=pushed
    )
    layout = vk.vkCreatePipelineLayout(device, info, None)
    module = vk.vkCreateShaderModule(device, vk.VkShaderModuleCreateInfo(codeSize=len(data), pCode=data), None)
    shader = vk.VkPipelineShaderStageCreateInfo(stage=stage, module=module, pName=read.entry)
    info = vk.VkComputePipelineCreateInfo(stage=shader, layout=layout, basePipelineIndex=-1)
    vk.vkCreateComputePipelines(device, None, 1, [info], None)


def main() -> None:
    import vulkan as vk

    device = _open(vk)
    for path in sys.argv[1:]:
        sys.stderr.write(f"\n{_MARK}\n")
        sys.stderr.flush()
        _compile(vk, device, Path(path).read_bytes())


if __name__ == "__main__":
    main()
