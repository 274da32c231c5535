"""Every op that hightide knows: what it takes, its shapes, kernels, NumPy reference and test cases.

Importing this package fills `REGISTRY`. May know `graph`, `formats` and `wgsl`; knows no GPU: kernels are text here.
"""

from importlib import import_module

from hightide.ops.contract import FAMILIES, REGISTRY

# One folder each, with a module of the same name that declares the ops.
FOLDERS = (
    "views",
    "symints",
    "elementwise",
    "movement",
    "gather",
    "norm",
    "linear",
    "experts",
    "conv",
    "pool",
    "resample",
    "quantize",
    "int8",
    "training",
    "embedding",
    "rotary",
    "attention",
    "coded_attention",
    "delta_rule",
    "pages",
    "short_conv",
    "spans",
    "sampling",
    "softmax",
    "fill",
    "reduce",
    "scan",
    "sort",
    "scatter",
    "portable",  # last: it fills in what no family above has
)

for _folder in FOLDERS:
    import_module(f"hightide.ops.{_folder}.{_folder}")

__all__ = ["FAMILIES", "FOLDERS", "REGISTRY"]
