"""What there is to run on, what is wrong with it, and whether its kernels are right: `hightide doctor`."""
