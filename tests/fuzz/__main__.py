"""`python -m fuzz`: many cases in several processes. Failures are made small and kept in `found/`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

from fuzz.minimise import keep, minimised
from fuzz.mutations import case
from fuzz.seeds import KINDS, seeds
from fuzz.workers import Failure, Job, Pool, in_process

# Of every hundred cases; "gpu" runs apart, a hundredth of the others.
SHARES = {"pte": 30, "graph": 14, "gguf": 14, "ptd": 4, "json": 5, "sentencepiece": 3}
SHARES |= {"folder": 6, "encoder": 4, "encoder_folder": 3, "split": 2, "adapter": 2, "peft": 3}
SHARES |= {"tiktoken": 2, "llama2c": 2, "template": 2, "state": 2, "cache": 2}
ON_GPU = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", default="0", help="other seeds are other cases")
    parser.add_argument("--kind", choices=KINDS, help="only files of this kind")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-gpu", action="store_true", help="run nothing on an adapter")
    options = parser.parse_args()
    pool, failures, start = Pool(options.processes, options.seed), Counter[str](), time.monotonic()
    until = start + options.seconds
    for kind in SHARES:
        seeds(kind)  # made once, before processes are forked
    for jobs in _rounds(options.cases, options.kind, not options.no_gpu):
        for failure in pool.run(jobs, until):
            failures[f"{failure.kind}: {failure.what}"] += 1
            if failures[f"{failure.kind}: {failure.what}"] == 1:
                _report(failure, options.seed)
    seconds, cases = time.monotonic() - start, sum(pool.counts.values())
    print(f"{cases} cases in {seconds:.0f} s, {cases / seconds:.0f} a second")
    for what, number in sorted(pool.counts.items()):
        print(f"{number:8}  {what}")
    for what, number in failures.most_common():
        print(f"FAILED {number:5} times  {what}")
    return 1 if failures else 0


def _rounds(cases: int, only: str | None, gpu: bool) -> Iterator[Iterator[Job]]:
    """First what needs no adapter, then what does."""
    if only is not None:
        yield ((only, number) for number in range(cases))
        return
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    # 37 is prime to 100: every few cases have all kinds.
    yield islice(((kinds[number * 37 % len(kinds)], number) for number in count()), cases)
    if gpu:
        yield (("gpu", number) for number in range(cases // ON_GPU))


def _report(failure: Failure, seed: str) -> None:
    name, data = case(failure.kind, failure.number, seed)
    print(
        f"\n{failure.kind} case {failure.number} of seed {seed} ({name}): {failure.what}\n{failure.details}", flush=True
    )
    if failure.kind == "gpu":
        return

    def fails(changed: bytes) -> bool:
        return in_process(failure.kind, name, changed) == failure.what

    if failure.what == "hang" or not fails(data):  # a hang takes too long to try often
        print(f"kept as {keep(failure.kind, name, data)}")
    else:
        print(f"kept as {keep(failure.kind, name, minimised(failure.kind, name, data, fails))}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
