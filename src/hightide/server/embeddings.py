"""`/v1/embeddings`: the vectors of texts."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import numpy as np

from hightide.server.answers import Answers
from hightide.server.api_errors import bad_request
from hightide.server.messages import Ready
from hightide.server.models import ServedModel
from hightide.server.parameters import AnswerOptions, Parameters
from hightide.server.prompts import Prompt, check_room, read_text_prompt
from hightide.server.records import MAX_USER, Record
from hightide.server.service import Service

MAX_TEXTS = 2048  # of a request, as the API has it
AT_ONCE = 64  # of these, in the queue: others have their turn too
_NOTHING = AnswerOptions(options={}, stops=[], seeds=[0], grammar=None)  # is sampled


async def embeddings(service: Service, body: dict[str, Any], record: Record) -> dict[str, Any]:
    parameters = Parameters(body)
    model, facts = await service.model(parameters, record, embeds=True)
    if facts.ranks:
        raise bad_request(f"the model {model.name} ranks documents; ask /v1/rerank", "model", "model_not_suited")
    record.user = (parameters.text("user") or "")[:MAX_USER]
    as_numbers = parameters.one_of("encoding_format", ("float", "base64"), "float") == "float"
    width = parameters.integer("dimensions", 1, 2**31 - 1)
    truncate = parameters.boolean("truncate")
    given = _texts(parameters.take("input"))
    parameters.end()
    prompts = [await read_text_prompt(model.tokenizer, facts, text, "input", truncate) for text in given]
    vectors = [_cut(vector, width) for vector in await text_vectors(service, model, facts, prompts, record, "input")]
    data = [
        {"object": "embedding", "index": index, "embedding": vector.tolist() if as_numbers else _packed(vector)}
        for index, vector in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": model.name, "usage": usage(prompts)}


async def text_vectors(
    service: Service, model: ServedModel, facts: Ready, prompts: list[Prompt], record: Record, name: str
) -> list[np.ndarray]:
    """The vectors of texts, of the parameter of this name; of a model that ranks the scores of pairs, each [1]."""
    for prompt in prompts:
        check_room(prompt, facts, None, name)
    vectors: list[np.ndarray] = []
    for first in range(0, len(prompts), AT_ONCE):
        answers = Answers(model, prompts[first : first + AT_ONCE], _NOTHING, record)
        found = {}
        async with answers.begun(max(0.001, service.request_seconds - record.seconds)):
            async for update in answers:
                found[update.choice] = np.frombuffer(b64decode(update.vector), "<f4")
        vectors += [found[choice] for choice in sorted(found)]
    record.prompt_tokens = usage(prompts)["prompt_tokens"]
    record.outcome = "stop"
    return vectors


def usage(prompts: list[Prompt]) -> dict[str, int]:
    tokens = sum(len(prompt.ids) for prompt in prompts)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _texts(given: Any) -> list[Any]:
    """One text or several, each a string or token ids."""
    several = isinstance(given, list) and bool(given) and all(isinstance(item, str | list) for item in given)
    texts = given if several else [given]
    if len(texts) > MAX_TEXTS:
        raise bad_request(f"a request can have {MAX_TEXTS} texts, not {len(texts)}", "input")
    if given is None or any(len(text) == 0 for text in texts if isinstance(text, str | list)):
        raise bad_request("input must be a text, or an array of texts, none of them empty", "input")
    return list(texts)


def _cut(vector: np.ndarray, width: int | None) -> np.ndarray:
    """The first `width` numbers, again of length 1: what models trained for it (Matryoshka) allow."""
    if width is None or width == vector.size:
        return vector
    if width > vector.size:
        raise bad_request(f"dimensions can be at most {vector.size}, not {width}", "dimensions")
    part = vector[:width]
    return (part / max(float(np.linalg.norm(part)), 1e-12)).astype("<f4")


def _packed(vector: np.ndarray) -> str:
    return b64encode(vector.astype("<f4").tobytes()).decode()
