"""WebGPU: adapters, devices, pipelines from WGSL text, parameter blocks, recording, timestamps, limits.

Runs a list of commands. Knows `wgsl`, but no graph, no op, no plan and no language model.
"""
