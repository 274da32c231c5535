"""Answers that follow a JSON schema, and answers that are one of several texts."""

import json

import hightide

PLANET = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "moons": {"type": "integer", "minimum": 0}},
    "required": ["name", "moons"],
    "additionalProperties": False,
}
planet = hightide.Grammar.json_schema(PLANET)
verdict = hightide.Grammar.choice(["positive", "negative"])
REVIEWS = ("I loved this film!", "What a waste of time.")


def ask(engine, text, grammar):
    return engine.submit([{"role": "user", "content": text}], grammar=grammar)


with hightide.Engine("default", max_sequences=4) as engine:
    described = ask(engine, "Describe the planet Mars.", planet)
    verdicts = [ask(engine, f"Is this review positive or negative? {review}", verdict) for review in REVIEWS]
    print(json.loads(described.result().text))
    for review, request in zip(REVIEWS, verdicts, strict=True):
        print(f"{review} {request.result().text}")
