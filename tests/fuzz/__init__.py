"""Damaged files of every kind that hightide reads: the answer is an error of its own, or a valid run.

    python -m fuzz --cases 100000     (or `make fuzz`)

`seeds` are whole files, `mutations` damage them, `targets` do with a file what a user would, `workers` run cases in
processes that are watched, `minimise` makes what fails small. What failed once is in `found/` and runs with the tests.
"""
