"""Stream a text as it is generated, with temperature and top-p; the seed makes it repeatable on one adapter."""

import hightide
from hightide.llm.default_model import default_model

with hightide.LLM(default_model()) as llm:
    stream = llm.stream("Once upon a time", max_tokens=30, temperature=0.8, top_p=0.95, seed=1)
    for piece in stream:
        print(piece.text, end="", flush=True)
    print(f"\n[ended by {stream.finish_reason}: {stream.stats}]")
