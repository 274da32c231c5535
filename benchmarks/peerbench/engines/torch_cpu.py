"""A Llama in torch on one thread of the CPU, a reference: float32, or 4-bit weights with torch's own int4 kernel.

Usage: python torch_cpu.py MODEL.gguf f32|int4
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from quantized import GROUP, open_llama, quantize_q4
from wire import Sequential, serve

CONTEXT = 1280


class Int4:
    """x @ W.T with W in groups of 32, as `_weight_int4pack_mm_for_cpu` takes it (bfloat16 activations)."""

    def __init__(self, weights: torch.Tensor) -> None:
        packed, scales = quantize_q4(weights.numpy())
        nibbles = torch.stack([torch.from_numpy(packed & 15), torch.from_numpy(packed >> 4)], -1).flatten(1)
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(nibbles.to(torch.int32), 1)
        scale = torch.from_numpy(scales).T.contiguous()
        self.scales = torch.stack([scale, torch.zeros_like(scale)], -1).to(torch.bfloat16).contiguous()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, -2).to(torch.bfloat16).contiguous()
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(flat, self.packed, GROUP, self.scales)
        return y.float().unflatten(0, x.shape[:-1])


class Float32:
    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weights)


class Llama(Sequential):
    def __init__(self, path: str, linear: type[Int4] | type[Float32]) -> None:
        llama = open_llama(path)
        self.sizes, self.eps = llama.sizes, llama.eps

        def tensor(name: str) -> torch.Tensor:
            return torch.from_numpy(llama[f"{name}.weight"].copy())

        matrices = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
        self.layers = [
            {m: linear(tensor(f"blk.{n}.{m}")) for m in matrices}
            | {m: tensor(f"blk.{n}.{m}") for m in ("attn_norm", "ffn_norm")}
            for n in range(self.sizes["layers"])
        ]
        self.table, self.norm = tensor("token_embd"), tensor("output_norm")
        self.head = linear(torch.from_numpy(llama.head.copy()))
        cos, sin = llama.rope_tables(CONTEXT)
        self.rotation = torch.complex(torch.from_numpy(cos), torch.from_numpy(sin))  # [context, depth / 2]
        dims = (1, self.sizes["kv_heads"], CONTEXT, self.sizes["depth"])
        self.caches = [(torch.zeros(dims), torch.zeros(dims)) for _ in self.layers]
        self.position = self.next = 0

    def _rotate(self, x: torch.Tensor, position: int) -> torch.Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # [1, S, heads, depth / 2]
        turn = self.rotation[position : position + x.shape[1], None]
        return torch.view_as_real(pairs * turn).flatten(-2)

    @torch.inference_mode()
    def step(self, tokens: list[int]) -> int:
        sizes, position, count = self.sizes, self.position, len(tokens)
        end = position + count
        x = self.table[torch.tensor([tokens])]
        for layer, (k_cache, v_cache) in zip(self.layers, self.caches, strict=True):
            h = F.rms_norm(x, (sizes["dim"],), layer["attn_norm"], self.eps)
            q = layer["attn_q"](h).unflatten(-1, (sizes["heads"], -1))
            k = layer["attn_k"](h).unflatten(-1, (sizes["kv_heads"], -1))
            v = layer["attn_v"](h).unflatten(-1, (sizes["kv_heads"], -1))
            k_cache[:, :, position:end] = self._rotate(k, position).transpose(1, 2)
            v_cache[:, :, position:end] = v.transpose(1, 2)
            attended = F.scaled_dot_product_attention(
                self._rotate(q, position).transpose(1, 2),
                k_cache[:, :, :end],
                v_cache[:, :, :end],
                is_causal=count > 1,  # a prompt starts at 0
                enable_gqa=True,
            )
            x = x + layer["attn_output"](attended.transpose(1, 2).flatten(-2))
            h = F.rms_norm(x, (sizes["dim"],), layer["ffn_norm"], self.eps)
            x = x + layer["ffn_down"](F.silu(layer["ffn_gate"](h)) * layer["ffn_up"](h))
        last = F.rms_norm(x[:, -1], (sizes["dim"],), self.norm, self.eps)
        self.position, self.next = end, int(self.head(last).argmax())
        return self.next


def open_peer() -> tuple[Llama, dict[str, Any]]:
    torch.set_num_threads(1)
    model = Llama(sys.argv[1], {"f32": Float32, "int4": Int4}[sys.argv[2]])
    return model, {"device": "CPU, 1 thread", "version": f"torch {torch.__version__}"}


if __name__ == "__main__":
    serve(open_peer)
