"""`/tokenize` and `/detokenize`"""

from __future__ import annotations

from typing import Any

from hightide.errors import HightideError
from hightide.server.api_errors import bad_request
from hightide.server.parameters import Parameters
from hightide.server.prompts import read_chat_prompt, read_text_prompt
from hightide.server.records import Record
from hightide.server.service import Service
from hightide.server.tools import read_tool_use


async def tokenize(service: Service, body: dict[str, Any], record: Record) -> dict[str, Any]:
    """Text (`prompt` or `content`) or chat messages as token ids."""
    parameters = Parameters(body)
    model, facts = await service.model(parameters, record, embeds=None)
    texts = [text for name in ("prompt", "content") if (text := parameters.text(name)) is not None]
    messages = parameters.array("messages")
    if len(texts) + (messages is not None) != 1:
        raise bad_request("give one of prompt, content and messages")
    special = parameters.boolean("add_special_tokens", True)
    if messages is not None:
        tools = read_tool_use(parameters, nested=True)
        parameters.end()
        ids = (await read_chat_prompt(model.tokenizer, facts, messages, tools, {})).ids
        if not all(isinstance(id, int) for id in ids):
            raise bad_request("images and audio have no tokens", "messages")
    else:
        parameters.end()
        ids = (await read_text_prompt(model.tokenizer, facts, texts[0])).ids
        if not special and model.tokenizer.add_bos:
            ids = ids[1:]
    return {"tokens": ids, "count": len(ids), "max_model_len": facts.context}


async def detokenize(service: Service, body: dict[str, Any], record: Record) -> dict[str, Any]:
    parameters = Parameters(body)
    model, _ = await service.model(parameters, record, embeds=None)
    tokens = parameters.array("tokens")
    parameters.end()
    if tokens is None or not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
        raise bad_request("tokens must be an array of token ids", "tokens")
    try:
        text = model.tokenizer.decode(tokens, special=True)
    except HightideError as error:
        raise bad_request(str(error), "tokens") from None
    return {"prompt": text, "content": text}  # as vLLM and llama-server name it
