"""Is the GPU right? Every op beside its float64 reference, at chosen levels: see `docs/verify.md`."""
