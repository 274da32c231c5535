"""Whisper as torch modules, for `torch.export`: an encoder, and a text decoder with a KV cache.

Parameters have the names of OpenAI's checkpoints. Attention is written with the ops that ExecuTorch's Vulkan
backend knows: `et_vk.sdpa`, and `llama.update_cache` with `llama.custom_sdpa` where there is a cache.
"""

from __future__ import annotations

import executorch.backends.vulkan.custom_ops_lib
import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  both register ops
import torch
from torch import Tensor, nn
from torch.nn import functional

from hightide.formats.whisper_ggml import WhisperSizes


class AudioEncoder(nn.Module):
    """[1, mels, frames] -> [1, frames / 2, width]"""

    def __init__(self, sizes: WhisperSizes) -> None:
        super().__init__()
        width = sizes.audio_width
        self.conv1 = nn.Conv1d(sizes.mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.positional_embedding = nn.Parameter(torch.zeros(sizes.audio_context, width))
        self.blocks = nn.ModuleList(EncoderBlock(width, sizes.audio_heads) for _ in range(sizes.audio_layers))
        self.ln_post = nn.LayerNorm(width)

    def forward(self, input_features: Tensor) -> Tensor:
        x = functional.gelu(self.conv1(input_features))
        x = functional.gelu(self.conv2(x)).permute(0, 2, 1) + self.positional_embedding
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


class TextDecoder(nn.Module):
    """Token ids [1, S] at positions [S], and what the encoder gave -> logits [1, S, vocabulary]"""

    def __init__(self, sizes: WhisperSizes) -> None:
        super().__init__()
        width = sizes.text_width
        self.context = sizes.text_context
        self.token_embedding = nn.Embedding(sizes.vocabulary, width)
        self.positional_embedding = nn.Parameter(torch.zeros(sizes.text_context, width))
        self.blocks = nn.ModuleList(
            DecoderBlock(width, sizes.text_heads, sizes.text_context) for _ in range(sizes.text_layers)
        )
        self.ln = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor, encoder_output: Tensor, cache_position: Tensor) -> Tensor:
        position = cache_position[0].item()
        torch._check(position >= 0)
        torch._check(position + input_ids.size(1) <= self.context)
        x = self.token_embedding(input_ids) + functional.embedding(cache_position, self.positional_embedding)
        for block in self.blocks:
            x = block(x, encoder_output, position)
        return functional.linear(self.ln(x), self.token_embedding.weight)


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn, self.attn_ln = Heads(width, heads), nn.LayerNorm(width)
        self.mlp, self.mlp_ln = feed_forward(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attn_ln(x)
        x = x + self.attn.over(y, y)
        return x + self.mlp(self.mlp_ln(x))


class DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.attn, self.attn_ln = Heads(width, heads), nn.LayerNorm(width)
        self.cross_attn, self.cross_attn_ln = Heads(width, heads), nn.LayerNorm(width)
        self.mlp, self.mlp_ln = feed_forward(width), nn.LayerNorm(width)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, context, heads, width // heads), persistent=False)

    def forward(self, x: Tensor, heard: Tensor, position: int) -> Tensor:
        x = x + self.attn.cached(self.attn_ln(x), self.k_cache, self.v_cache, position)
        x = x + self.cross_attn.over(self.cross_attn_ln(x), heard)
        return x + self.mlp(self.mlp_ln(x))


class Heads(nn.Module):
    """Attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def over(self, x: Tensor, seen: Tensor) -> Tensor:
        """Every row of x [1, S, width] over all rows of `seen`."""
        q, k, v = (self.split(y).transpose(1, 2) for y in (self.query(x), self.key(seen), self.value(seen)))
        y = torch.ops.et_vk.sdpa(q, k, v)  # [1, heads, S, width / heads]
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def cached(self, x: Tensor, k_cache: Tensor, v_cache: Tensor, position: int) -> Tensor:
        """Over the rows before, whose keys and values are in the caches, and over x itself up to each row."""
        q, k, v = (self.split(y) for y in (self.query(x), self.key(x), self.value(x)))
        torch.ops.llama.update_cache(k, k_cache, position)
        torch.ops.llama.update_cache(v, v_cache, position)
        y = torch.ops.llama.custom_sdpa(q, k_cache, v_cache, position, None, 0, True)
        return self.out(y.reshape(x.shape))

    def split(self, x: Tensor) -> Tensor:
        """[1, S, width] -> [1, S, heads, width / heads]"""
        return x.view(1, x.size(1), self.heads, -1)


def feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
