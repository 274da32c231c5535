"""Estimates which sizes of models fit on an adapter, from their dims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hightide.gpu.device import Adapter
from hightide.host_memory import free_memory, total_memory

CONTEXT = 4096
CHUNK = 128  # tokens of a prompt in one run
WEIGHT_BITS, TABLE_BITS = 4.5, 8.5  # blocks of 32 with a scale in half precision; the table of tokens is mostly Q8_0


@dataclass(frozen=True)
class ModelClass:
    """A common size of model, by an example; `size` is its number of weights."""

    name: str
    size: float
    layers: int
    hidden: int
    ffn: int
    kv_heads: int
    depth: int
    vocab: int

    @property
    def weights(self) -> int:
        table = self.vocab * self.hidden
        return int((self.size - table) * WEIGHT_BITS + table * TABLE_BITS) // 8

    def caches(self, item: int) -> int:
        return 2 * self.layers * CONTEXT * self.kv_heads * self.depth * item

    @property
    def activations(self) -> int:
        """A chunk's: about eight of the hidden state's size, gate and up, and the logits read back twice."""
        return 4 * (CHUNK * (8 * self.hidden + 2 * self.ffn) + 3 * self.vocab)


CLASSES = (
    ModelClass("135M (SmolLM2)", 0.135e9, 30, 576, 1536, 3, 64, 49_152),
    ModelClass("0.5B (Qwen2.5)", 0.494e9, 24, 896, 4864, 2, 64, 151_936),
    ModelClass("1B (Llama 3.2)", 1.24e9, 16, 2048, 8192, 8, 64, 128_256),
    ModelClass("3B (Llama 3.2)", 3.21e9, 28, 3072, 8192, 8, 128, 128_256),
    ModelClass("8B (Llama 3.1)", 8.03e9, 32, 4096, 14_336, 8, 128, 128_256),
    ModelClass("14B (Qwen2.5)", 14.8e9, 48, 5120, 13_824, 8, 128, 152_064),
    ModelClass("32B (Qwen2.5)", 32.8e9, 64, 5120, 27_648, 8, 128, 152_064),
    ModelClass("70B (Llama 3.1)", 70.6e9, 80, 8192, 28_672, 8, 128, 128_256),
)


@dataclass(frozen=True)
class Fit:
    """A class on an adapter, at 4 bits and 4096 tokens of context."""

    name: str
    needs: int  # bytes
    fits: bool
    tokens_per_second: float  # the most that reading weights and caches allows; 0: not measured


def find_fits(memory: int, half_caches: bool, read_gb_s: float = 0) -> list[Fit]:
    fits = []
    for model in CLASSES:
        read = model.weights + model.caches(2 if half_caches else 4)
        needs = read + model.activations
        speed = read_gb_s * 1e9 / read
        fits.append(Fit(model.name, needs, needs <= memory, speed))
    return fits


def adapter_memory(adapter: Adapter, own: Iterable[tuple[str, int]], root: Path = Path("/")) -> int:
    """Bytes that a model may take on this adapter; `own` is what Vulkan says of each device by name.

    A software adapter uses the machine's memory, as far as it is free and the container may have it.
    """
    heap = next((size for name, size in own if name == adapter.name and size), 0)
    if adapter.kind in ("DiscreteGPU", "VirtualGPU") and heap:
        return heap
    free = free_memory(root)
    if adapter.backend == "Metal":
        free = total_memory() * 3 // 4  # what Metal lets a process have of the memory it shares with the CPU
    return min(size for size in (heap, free) if size) if heap or free else 0
