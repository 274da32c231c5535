"""Run an exported program at several live shapes: it is built once, and every call brings its own length."""

from pathlib import Path

import numpy as np

import hightide

PROGRAM = Path(__file__).parents[1] / "tests" / "conformance" / "llama_gqa.pte"

rng = np.random.default_rng(0)
with hightide.load(PROGRAM) as program:
    forward = program.method("forward")  # builds: buffers, pipelines, bind groups
    print(forward)
    position = 0
    for length in (7, 1, 1, 13, 1):  # a prompt, two tokens, a longer turn, a token
        tokens = rng.integers(0, program.metadata["get_vocab_size"], (1, length))
        (logits,) = forward(tokens=tokens, input_pos=[position])
        print(f"{length:2} tokens at position {position:2}: the next token is {logits.argmax()}")
        position += length
