"""Chat messages to a prompt, by the template that comes with the model.

Templates come from strangers' files: a process with little memory and time renders them. See `template_sandbox`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hightide.errors import InputError
from hightide.llm.template_pipe import pack
from hightide.llm.template_process import shared_process

# For models without a template.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Message = Mapping[str, Any]


def render(
    template: str | None,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    bos_token: str = "",
    eos_token: str = "",
    tools: Sequence[Mapping[str, Any]] | None = None,
    **variables: Any,
) -> str:
    """The prompt; without a template, in ChatML. `variables` are what else a template asks for (enable_thinking)."""
    checked = [check_message(message, f"message {i + 1}") for i, message in enumerate(_messages(messages))]
    values = dict(variables, messages=checked, add_generation_prompt=add_generation_prompt)
    values |= dict(bos_token=bos_token, eos_token=eos_token, tools=tools)
    answer = shared_process().ask(_request(template or CHATML, values))
    if "error" in answer:
        raise InputError(answer["error"])
    text: str = answer["text"]
    return text


def prepare() -> None:
    """Start the process that renders, so that it is ready when the first messages are."""
    shared_process().start()


def check_message(message: Any, place: str) -> dict[str, Any]:
    """The message as templates want it: content given as a list of text parts becomes one string.

    A tuple is what `take_media` made for a template that looks into parts, and stays as it is.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InputError(f"{place} must be a dict with a role and content, such as {{'role': 'user', 'content': 'Hi'}}")
    content = message.get("content")
    if isinstance(content, tuple):
        return dict(message)
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise InputError(f"{place} has content other than text")
        content = "".join(str(part) for part in parts)
    if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
        raise InputError(f"{place} ({message['role']}) has no content, or content other than text")
    return dict(message, content=content)


def _messages(messages: Any) -> Sequence[Message]:
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise InputError("messages must be a list of at least one dict with a role and content")
    return messages


def _request(template: str, values: Mapping[str, Any]) -> bytes:
    try:
        return pack({"template": template, "values": _plain(values)})
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"messages, tools and variables of a chat template must be plain data: {error}") from None


def _plain(value: Any) -> Any:
    """As JSON has it: dicts, lists, text, numbers, booleans, None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} is not")
