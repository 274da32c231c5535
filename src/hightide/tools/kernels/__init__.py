"""What a GPU that need not be there would make of a model's kernels: machine code by the real compiler, and a model of
the time that each dispatch takes."""
