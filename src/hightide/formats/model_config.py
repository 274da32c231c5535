"""`config.json` of a Hugging Face folder, with what its model type leaves out, and the fields that all types share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hightide.errors import ProgramError, UnsupportedError

# GGUF's name of a field, and the names that configs have for it.
NAMES = {
    "context_length": ("max_position_embeddings", "n_ctx", "n_positions"),
    "embedding_length": ("hidden_size", "n_embd"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"),
    "expert_count": ("num_local_experts", "num_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "vocab_size": ("vocab_size",),
}
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
THETA = ("rope_theta", "rotary_emb_base")
PARTIAL = ("partial_rotary_factor", "rotary_pct")


@dataclass(frozen=True)
class ModelConfig:
    """The values of a config; those of `text_config` where the text model is one of several."""

    path: Path
    values: Mapping[str, Any]

    def get(self, *names: str) -> Any:
        """The first of these names that has a value."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def count(self, *names: str) -> int:
        """A positive integer that must be there."""
        value = self.get(*names)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
            raise ProgramError(f"{self.path}: {names[0]} is {value!r}, not a positive integer")
        return value

    def number(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ProgramError(f"{self.path}: {name} is {value!r}, not a positive number")
        return float(value)

    def need(self, name: str, *allowed: Any) -> None:
        """UnsupportedError if a value is something that the architecture is not built for."""
        value = self.get(name)
        if value not in (None, *allowed):
            known = " or ".join(map(repr, allowed)) or "nothing"
            raise UnsupportedError(f"{self.path}: {name} is {value!r}; only {known} is supported")

    @property
    def layers(self) -> int:
        return self.count(*LAYERS)

    @property
    def heads(self) -> int:
        return self.count(*NAMES["attention.head_count"])

    @property
    def kv_heads(self) -> int:
        return self.count("num_key_value_heads") if self.get("num_key_value_heads") is not None else self.heads

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        given = self.get("head_dim")
        return self.count("head_dim") if given is not None else self.count("hidden_size", "n_embd") // self.heads

    @property
    def rotary(self) -> int:
        """Elements of a head that turn."""
        part = self.rope.get("partial_rotary_factor")
        return self.head_dim if part is None else int(self.number("partial_rotary_factor", part) * self.head_dim)

    @cached_property
    def rope(self) -> dict[str, Any]:
        """`rope_parameters`, or what older configs have in several places; of the global layers."""
        given = self.get("rope_parameters", "rope_scaling") or {}
        if not isinstance(given, dict):
            raise ProgramError(f"{self.path}: the rotary parameters are {type(given).__name__}, not an object")
        rope = given.get("full_attention", given)
        if not isinstance(rope, dict):
            raise ProgramError(f"{self.path}: the rotary parameters are {type(rope).__name__}, not an object")
        beside = {
            "rope_theta": self.get(*THETA),
            "rope_type": rope.get("type"),
            "partial_rotary_factor": self.get(*PARTIAL),
            "original_max_position_embeddings": self.get("original_max_position_embeddings"),
        }
        return {name: value for name, value in beside.items() if value is not None} | rope

    @property
    def local_theta(self) -> Any:
        """The rotary base of layers with a window, where it is another."""
        given = self.get("rope_parameters", "rope_scaling") or {}
        local = given.get("sliding_attention") if isinstance(given, dict) else None
        return local.get("rope_theta") if isinstance(local, dict) else self.get("rope_local_base_freq")

    def fields(self) -> dict[str, Any]:
        """What every architecture is asked for, as GGUF names it."""
        found = {name: self.get(*names) for name, names in NAMES.items()}
        found |= {"block_count": self.layers, "rope.freq_base": self.rope.get("rope_theta")}
        found |= {"attention.head_count_kv": self.kv_heads}
        found |= {f"attention.{of}_length": self.head_dim for of in ("key", "value")}
        return {name: value for name, value in (found | self._scaling()).items() if value is not None}

    def _scaling(self) -> dict[str, Any]:
        rope, kind = self.rope, str(self.rope.get("rope_type", "default")).lower()
        if kind in ("default", "llama3", "dynamic"):  # in the tensor rope_freqs; only past the context
            return {}
        if kind in ("su", "longrope"):
            return {"rope.scaling.type": "longrope"}
        fields = {"type": kind, "factor": rope.get("factor")}
        if kind == "yarn":
            fields |= {
                "original_context_length": rope.get(
                    "original_max_position_embeddings", self.get("max_position_embeddings")
                ),
                "yarn_attn_factor": rope.get("attention_factor"),
                "yarn_beta_fast": rope.get("beta_fast"),
                "yarn_beta_slow": rope.get("beta_slow"),
            }
            if rope.get("mscale") != rope.get("mscale_all_dim"):
                raise UnsupportedError(f"{self.path} has a magnitude of its own (mscale) for its rotary angles")
        return {f"rope.scaling.{name}": value for name, value in fields.items()}

    def rope_freqs(self) -> dict[str, np.ndarray]:
        """By what each frequency is divided, [rotary / 2], where Llama 3's scaling is asked for."""
        rope = self.rope
        if str(rope.get("rope_type")).lower() != "llama3":
            return {}
        names = ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        theta, factor, low, high, trained = (self.number(name, rope.get(name)) for name in names)
        wavelength = 2 * np.pi * theta ** (np.arange(0, self.rotary, 2) / self.rotary)
        smooth = np.clip((trained / wavelength - low) / max(high - low, 1e-9), 0, 1)
        return {"rope_freqs.weight": (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)}
