"""The bench: hightide and its peers on one adapter, in turns, with what the adapter could do at most."""
