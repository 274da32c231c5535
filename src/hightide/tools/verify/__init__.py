"""Is the GPU right? Compares every op with its float64 reference, at chosen levels: see `docs/verify.md`."""
