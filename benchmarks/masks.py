"""What a grammar costs: a decode step whose rows have masks, beside the same step without.

    python benchmarks/masks.py [MODEL]

Steps with and without are taken in turns in one process, so that a busy machine changes them alike: trust the ratio.
The figure is the median of the ratios of neighbours. A masked step includes all that is done for it: the grammar takes
a token, says which may follow, and these bits go to the device.
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

ROUNDS, CONTEXT = 80, 256
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
    """Milliseconds of a step without masks; the ratio of one with masks to it, and the part that is the grammar's."""
    decoder, each = model.decoder, model.decoder.pages // len(followers)
    plain, ratios, shares = [], [], []
    for position in range(ROUNDS):
        took, own = {}, 0.0
        for masked in (False, True) if position % 2 else (True, False):
            start = time.perf_counter()
            masks = [follower.next_mask() for follower in followers] if masked else []
            own = max(own, time.perf_counter() - start)
            rows = [
                Rows([7], position, range(n * each, (n + 1) * each), 1, [settings], masks[n : n + 1])
                for n in range(len(followers))
            ]
            decoder.collect(decoder.launch(Batch(rows)))
            took[masked] = time.perf_counter() - start
        plain.append(took[False] * 1e3)
        ratios.append(took[True] / took[False])
        shares.append(own / took[False])
    return statistics.median(plain[4:]), statistics.median(ratios[4:]), statistics.median(shares[4:])


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
            plain, ratio, own = compare(model, followers, settings)
            share = f"{ratio:.3f} times as long with masks, of which {100 * own:.1f} % the grammar"
            print(f"  {count} at once, {name}: {plain:.1f} ms without, {share}", flush=True)
    model.decoder.close()


if __name__ == "__main__":
    main()
