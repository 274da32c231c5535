"""Sessions: a graph built on a GPU or on NumPy, run at any level.

The place where what is to be done (`graph`, `ops`, `planning`, `fuse`) meets how a GPU does it (`gpu`).
"""
