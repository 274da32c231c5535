"""Files: `.pte`, `.ptd` and GGUF into program files and graphs, every offset and length checked before use.

May know `graph`; knows no op and no GPU. Weights are not read here: they stay in the file as blobs.
"""
