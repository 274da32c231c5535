"""Many clients of one server at once, good and bad: `python -m load` (see `make load`)."""
