"""Language models: text in, text out. Architectures, tokenizers, templates, sampling, the decode loop.

Uses sessions through `pte` and `runtime`; never touches the GPU itself.
"""
