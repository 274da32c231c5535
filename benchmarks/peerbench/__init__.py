"""hightide beside other engines on one adapter: each a process of its own, all in turns, in one run."""
