"""Chat with a model: the second question only makes sense with the first, whose KV cache is reused."""

import hightide
from hightide.llm.default_model import default_model

with hightide.LLM(default_model()) as llm:  # or the path of any GGUF file
    messages = []
    for question in ("What is the capital of France?", "And of Italy?"):
        messages.append({"role": "user", "content": question})
        answer = llm.generate(messages, max_tokens=40)
        messages.append({"role": "assistant", "content": answer.text})
        print(f"> {question}\n{answer.text}")
    print(f"[{answer.stats}]")
