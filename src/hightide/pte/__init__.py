"""ExecuTorch programs: `load`, `Program` and `Method`, and the interpreter for what is outside delegates.

May know `formats` and `runtime` and everything below; knows no language model.
"""
