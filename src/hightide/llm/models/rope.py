"""Rotary tables as a file's fields say: base, scaling by a factor, factors per frequency."""

from __future__ import annotations

import math

import numpy as np

from hightide.errors import ProgramError, UnsupportedError
from hightide.graph.values import TensorValue
from hightide.llm.models.model_builder import ModelBuilder, Rope

KINDS = ("none", "linear", "yarn", "longrope", "llama3")


def rope_of(
    m: ModelBuilder, *, halves: bool, depth: int = 0, whole: bool = True, yarn_magnitude: float | None = None
) -> Rope:
    """For heads of `depth`, if that is not what the file says.

    With YaRN, `whole` says that the bounds between its frequencies are rounded to whole ones, and `yarn_magnitude` what
    the tables are multiplied with, if that does not follow from the fields.
    """
    depth = depth or m.attention_dims()[2]
    theta = m.number("rope.freq_base", 10_000.0, least=2)
    rotary = m.count("rope.dimension_count", depth)
    if rotary > depth:
        raise ProgramError(f"{m.file.path} rotates {rotary} elements of heads that have {depth}")
    kind = m.file.get("rope.scaling.type", "linear")  # as in llama.cpp: a factor without a type is linear
    if kind not in KINDS:
        raise UnsupportedError(f"{m.file.path} scales its rotary angles by {kind}; {', '.join(KINDS)} are supported")
    factor = m.number("rope.scaling.factor", m.number("rope.scale_linear", 1.0)) or 1.0
    factors, scale = None, 1.0
    magnitude = m.number("rope.scaling.attn_factor", 1.0)
    if m.has("rope_freqs.weight"):  # Llama 3
        factors = m.array("rope_freqs.weight").astype(np.float64)
    elif m.has("rope_factors_long.weight"):  # Phi-3: other factors past the context it was trained on
        trained = m.count("rope.scaling.original_context_length", m.count("context_length"))
        name = "rope_factors_long.weight" if m.context > trained else "rope_factors_short.weight"
        factors = m.array(name).astype(np.float64)
        magnitude = m.number("rope.scaling.attn_factor", _longrope_magnitude(m.count("context_length"), trained))
    if kind == "linear":
        scale = 1.0 / factor
    elif kind == "yarn":
        trained = m.count("rope.scaling.original_context_length", m.count("context_length"))
        fast = m.number("rope.scaling.yarn_beta_fast", 32.0, least=1e-3)
        slow = m.number("rope.scaling.yarn_beta_slow", 1.0, least=1e-3)
        factors = _yarn_factors(factor, trained, theta, rotary, fast, slow, whole)
        usual = _yarn_magnitude(factor, 1.0) / _yarn_magnitude(factor, m.number("rope.scaling.yarn_log_multiplier", 0))
        magnitude *= m.number("rope.scaling.yarn_attn_factor", usual if yarn_magnitude is None else yarn_magnitude)
    return m.rope(
        halves=halves, theta=theta, rotary=rotary, depth=depth, factors=factors, scale=scale, magnitude=magnitude
    )


def temperature_of(m: ModelBuilder) -> TensorValue | None:
    """What queries are multiplied by at each position [S, 1, 1]; None for models that do nothing of the kind."""
    growth = m.number("attention.temperature_scale", 0)
    if not growth:
        return None
    trained = m.count("rope.scaling.original_context_length")
    grown = 1 + growth * np.log1p(np.arange(m.context) // trained)
    return m.at_positions(grown.astype(np.float32)[:, None, None])


def _yarn_magnitude(factor: float, multiplier: float) -> float:
    return 1 + 0.1 * multiplier * math.log(max(factor, 1.0))


def _longrope_magnitude(context: int, trained: int) -> float:
    return math.sqrt(1 + math.log(context / trained) / math.log(trained)) if context > trained > 1 else 1.0


def _yarn_factors(
    factor: float, trained: int, theta: float, rotary: int, fast: float, slow: float, whole: bool
) -> np.ndarray:
    """YaRN (arXiv 2309.00071): frequencies of more than `fast` turns in the trained context stay as they are,
    those of less than `slow` are divided by the factor, those between by something between."""

    def pair_of(turns: float) -> float:
        return rotary * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_of(fast), pair_of(slow)
    if whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary - 1)
    slowed = np.clip((np.arange(rotary // 2) - first) / max(last - first, 0.001), 0, 1)
    return 1 / (slowed / factor + 1 - slowed)
