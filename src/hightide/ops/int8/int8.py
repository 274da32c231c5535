"""Ops on 8-bit codes: importing this registers them."""

from hightide.ops.int8 import affine, codes, conv, linear, qparams

__all__ = ["affine", "codes", "conv", "linear", "qparams"]
