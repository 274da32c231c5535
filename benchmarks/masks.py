"""What a grammar costs: a decode step whose rows have masks, beside the same step without.

    python benchmarks/masks.py [MODEL]

Steps with and without are taken in turns in one process, so that a busy machine changes them alike: trust the ratio.
A masked step includes all that is done for it: the grammar takes a token, says which may follow, and these bits go
to the device. The step is not overlapped with another, as it cannot be for an answer by a grammar.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from hightide import Grammar
from hightide.llm.batch import GREEDY, Batch, Rows
from hightide.llm.default_model import default_model
from hightide.llm.grammar import GrammarConstraint, GrammarVocabulary
from hightide.llm.model import Model, Placement, open_model

ROUNDS, CONTEXT = 40, 256
SAMPLED = np.array([0.8, 40, 0.95, 0.0, 0.5], np.float32)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "price": {"type": "number", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["new", "used", "sold"]}},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    "required": ["name", "price", "tags", "address"],
}
TEXT = '{"name": "An old armchair of green leather", "price": 249.5, "tags": ["used", "sold"], "address": {"city'


class Follower:
    """An answer by the grammar, again and again."""

    def __init__(self, vocabulary: GrammarVocabulary, grammar: Grammar, ids: list[int], at: int) -> None:
        self.vocabulary, self.grammar, self.ids, self.at = vocabulary, grammar, ids, 0
        self.state: GrammarConstraint = vocabulary.constraint(grammar)
        for _ in range(at):
            self.next_mask()

    def next_mask(self) -> np.ndarray:
        """As an answer does after each token."""
        if self.at == len(self.ids):
            self.state, self.at = self.vocabulary.constraint(self.grammar), 0
        self.state.accept(self.ids[self.at])
        self.at += 1
        if not self.state.complete:
            self.state.forced()
        return self.state.mask()


def compare(model: Model, followers: list[Follower], settings: np.ndarray) -> tuple[float, float, float]:
    """Milliseconds: a step without masks, one with them, and what of it is the grammar's."""
    decoder, plain, masked, grammar = model.decoder, [], [], []
    each = decoder.pages // len(followers)
    for position in range(ROUNDS):
        masks: list[np.ndarray] | None
        for masks in (None, []):
            start = time.perf_counter()
            if masks is not None:
                masks = [follower.next_mask() for follower in followers]
                grammar.append(time.perf_counter() - start)
            rows = [
                Rows([7], position, range(n * each, (n + 1) * each), 1, [settings], [masks[n]] if masks else ())
                for n in range(len(followers))
            ]
            decoder.collect(decoder.launch(Batch(rows)))
            (plain if masks is None else masked).append(time.perf_counter() - start)
    return tuple(statistics.median(times[4:]) * 1e3 for times in (plain, masked, grammar))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path)
    path = parser.parse_args().model or default_model()
    model = open_model(path, None, CONTEXT, 128, Placement(sequences=8))
    assert model.tokenizer is not None
    print(f"{path.name} on {model.decoder.device}, medians of {ROUNDS} rounds in turns", flush=True)
    vocabulary, grammar = GrammarVocabulary(model.tokenizer, model.decoder.vocab_size), Grammar.json_schema(SCHEMA)
    ids = model.tokenizer.encode(TEXT, bos=False)
    for count in (1, 8):
        for name, settings in (("greedy", GREEDY), ("sampled", SAMPLED)):
            followers = [Follower(vocabulary, grammar, ids, 3 * n) for n in range(count)]
            plain, masked, own = compare(model, followers, settings)
            share = f"{100 * (masked / plain - 1):+.1f} %"
            times = f"{plain:.2f} ms without, {masked:.2f} ms with masks ({own:.2f} ms the grammar)"
            print(f"  {count} at once, {name}: {times}: {share}", flush=True)
    model.decoder.close()


if __name__ == "__main__":
    main()
