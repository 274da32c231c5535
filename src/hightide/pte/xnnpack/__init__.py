"""Graphs of XNNPACK delegates as graphs of hightide's ops."""

from __future__ import annotations

from hightide.pte.xnnpack.translate import translated

__all__ = ["translated"]
