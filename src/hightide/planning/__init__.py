"""From a graph and the dims of its inputs to dispatches and buffers: plans, levels, memory, explanations.

May know `graph` and `ops`. Pure Python: it needs no adapter and no weights, so tools can plan without building.
"""
