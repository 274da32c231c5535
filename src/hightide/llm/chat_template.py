"""Chat messages to a prompt, by the template that comes with the model.

Templates come from strangers' files: they run in jinja2's sandbox, and loops, products and output are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hightide.errors import InputError

# For models without a template.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

MAX_CHARACTERS = 1 << 24  # of a prompt and of any string in it; far beyond every context
MAX_RANGE = 100_000  # steps of all ranges of one rendering

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
    values |= dict(bos_token=bos_token, eos_token=eos_token, tools=tools, range=_bounded_range())
    parts, length = [], 0
    try:
        for part in _compile(template or CHATML).generate(values):
            length += len(part)
            if length > MAX_CHARACTERS:
                raise _Refused(f"it wrote more than {MAX_CHARACTERS} characters")
            parts.append(part)
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"the chat template is not valid, at line {error.lineno}: {_sentence(error)}") from None
    except _Refused as error:
        raise InputError(f"the chat template refused the messages: {_sentence(error)}") from None
    except Exception as error:  # a template can fail in every way that Python can
        raise InputError(f"the chat template failed on these messages: {_sentence(error)}") from None
    return "".join(parts)


def check_message(message: Any, place: str) -> dict[str, Any]:
    """The message as templates want it: content given as a list of text parts becomes one string."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InputError(f"{place} must be a dict with a role and content, such as {{'role': 'user', 'content': 'Hi'}}")
    content = message.get("content")
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


class _Refused(jinja2.TemplateError):
    """A template's own `raise_exception`, or a bound that it passed."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox, which also refuses products and sums that would fill the memory."""

    intercepted_binops = frozenset(["+", "*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        lengths = [len(value) if isinstance(value, str | list | tuple) else None for value in (left, right)]
        if operator == "**" and isinstance(left, int) and left.bit_length() * right > 4096:
            raise _Refused(f"it asked for a number to the power of {right}")
        if operator == "+" and None not in lengths and sum(n or 0 for n in lengths) > MAX_CHARACTERS:
            raise _Refused(f"it asked for a value of more than {MAX_CHARACTERS} characters")
        if operator == "*" and any(lengths) and (lengths[0] or left) * (lengths[1] or right) > MAX_CHARACTERS:
            raise _Refused(f"it asked for a value of more than {MAX_CHARACTERS} characters")
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """`{% generation %}` marks an answer for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def _compile(template: str) -> jinja2.Template:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _Generation])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


def _raise(message: object) -> NoReturn:
    raise _Refused(str(message))


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON as it is: jinja2's own filter escapes < and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _bounded_range() -> Any:
    """`range`, of which one rendering may take so many steps, nested loops included."""
    left = MAX_RANGE

    def bounded(*arguments: int) -> Iterable[int]:
        nonlocal left
        steps = range(*arguments)
        left -= len(steps) + 1
        if left < 0:
            raise _Refused(f"it loops more than {MAX_RANGE} times")
        return steps

    return bounded


def _sentence(error: Exception) -> str:
    """One line, of a length for a terminal."""
    return " ".join(str(error).split())[:300] or type(error).__name__
