"""Ops on 8-bit codes: importing this registers them."""

from hightide.ops.int8 import affine, codes, codes_conv, codes_linear, qparams

__all__ = ["affine", "codes", "codes_conv", "codes_linear", "qparams"]
