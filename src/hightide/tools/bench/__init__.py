"""How fast a model runs here: tokens per second, the host's part, memory, and each kernel beside its limit."""
