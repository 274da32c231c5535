"""Answer several questions at once: they share the steps of the model, and the text that they all begin with."""

import hightide

SYSTEM = {"role": "system", "content": "You are a helpful assistant. Answer in one short sentence."}
COUNTRIES = ("France", "Italy", "Spain", "Japan")

with hightide.Engine("default", max_sequences=4) as engine:  # or the path of any GGUF file
    requests = {}
    for country in COUNTRIES:
        question = f"What is the capital of {country}?"
        requests[question] = engine.submit([SYSTEM, {"role": "user", "content": question}], max_tokens=24)
    for question, request in requests.items():
        print(f"> {question}\n{request.result().text}")
    stats = engine.stats()
    print(f"[{stats.new_tokens} tokens in {stats.steps} steps; {stats.prefix_tokens} prompt tokens were shared]")
