"""Graphs as pure data: values, op calls, which tensors share memory, and integers known only at run time.

Knows only errors and the notebook form of a table: no op, no file format, no GPU.
"""
