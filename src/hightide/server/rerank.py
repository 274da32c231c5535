"""`/v1/rerank`: documents in the order in which they go with a query, as Jina, Cohere and vLLM have it."""

from __future__ import annotations

from typing import Any

from hightide.option_checks import shown
from hightide.server.api_errors import bad_request
from hightide.server.embeddings import MAX_TEXTS, text_vectors, usage
from hightide.server.parameters import Parameters
from hightide.server.prompts import read_pair, read_text_prompt
from hightide.server.records import MAX_USER, Record
from hightide.server.service import Service


async def rerank(service: Service, body: dict[str, Any], record: Record) -> dict[str, Any]:
    """A cross-encoder's scores, or the cosines of vectors."""
    parameters = Parameters(body)
    model, facts = await service.model(parameters, record, embeds=True)
    record.user = (parameters.text("user") or "")[:MAX_USER]
    query = parameters.text("query")
    documents = _documents(parameters.array("documents"))
    most = parameters.integer("top_n", 1, 2**31 - 1, len(documents)) or len(documents)
    with_texts = parameters.boolean("return_documents")
    truncate = parameters.boolean("truncate")
    parameters.end()
    if not query:
        raise bad_request("query must be a text that is not empty", "query")
    if facts.ranks:
        prompts = [
            await read_pair(model.tokenizer, facts, query, text, f"documents[{n}]", truncate)
            for n, text in enumerate(documents)
        ]
        scores = [float(v[0]) for v in await text_vectors(service, model, facts, prompts, record, "documents")]
    else:
        prompts = [await read_text_prompt(model.tokenizer, facts, query, "query", truncate)]
        prompts += [
            await read_text_prompt(model.tokenizer, facts, text, f"documents[{n}]", truncate)
            for n, text in enumerate(documents)
        ]
        asked, *vectors = await text_vectors(service, model, facts, prompts, record, "documents")
        scores = [float(vector @ asked) for vector in vectors]
    best = sorted(range(len(scores)), key=lambda n: -scores[n])[:most]
    results = [
        {"index": n, "relevance_score": scores[n], **({"document": {"text": documents[n]}} if with_texts else {})}
        for n in best
    ]
    return {"object": "list", "model": model.name, "results": results, "usage": usage(prompts)}


def _documents(given: list[Any] | None) -> list[str]:
    """Texts, each as it is or as {"text": ...}."""
    if not given or len(given) > MAX_TEXTS:
        raise bad_request(f"documents must be an array of 1 to {MAX_TEXTS} texts", "documents")
    texts: list[Any] = [item.get("text") if isinstance(item, dict) else item for item in given]
    bad = next((n for n, text in enumerate(texts) if not isinstance(text, str) or not text), None)
    if bad is not None:
        name = f"documents[{bad}]"
        raise bad_request(f"{name} must be a text that is not empty, not {shown(given[bad])}", name)
    return texts
