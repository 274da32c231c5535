"""A long run of everything that a process may do to hightide, checked all along: `make soak`."""
