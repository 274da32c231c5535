"""`hightide doctor`: which adapters there are, what is wrong with them, and whether their kernels are right."""
