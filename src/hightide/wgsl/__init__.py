"""WGSL files as text for a GPU compiler: the preprocessor, and what a kernel declares. Knows no op and no GPU."""
