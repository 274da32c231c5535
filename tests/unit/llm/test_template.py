"""Chat templates: what they may use, how they fail, and what they may not do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hightide.errors import InputError
from hightide.llm.chat_template import CHATML, render

HI = [{"role": "user", "content": "Hi"}]
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)


def test_chatml_is_the_fallback() -> None:
    chat = [*HI, {"role": "assistant", "content": "Hello <b>\n"}]
    expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello <b>\n<|im_end|>\n"
    assert render(None, chat) == expected + "<|im_start|>assistant\n"
    assert render(CHATML, chat, add_generation_prompt=False) == expected


def test_a_real_template() -> None:
    chat = [{"role": "system", "content": "Be brief."}, *HI, {"role": "assistant", "content": "Hello"}, *HI]
    text = render(LLAMA2, chat, bos_token="<s>", eos_token="</s>")
    assert text == "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Hi [/INST]"
    with pytest.raises(InputError, match="refused the messages: Conversation roles must alternate"):
        render(LLAMA2, HI + HI)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ tools | tojson }}", '[{"name": "é<&>"}]'),
        ("{{ tools | tojson(indent=1) }}", '[\n {\n  "name": "é<&>"\n }\n]'),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% generation %}a{% endgeneration %}b", "ab"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ strftime_now('%Y')|length }}", "4"),
        ("{{ 'thinks' if enable_thinking else 'no' }}", "thinks"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 2 %}{% endfor %}{{ ns.n * 3 }}",
            "6",
        ),
        ("{{ '-' * 3 }}{{ missing is defined }}{{ 2 ** 5 }}{{ 'a' + 'b' }}", "---False32ab"),
        ("{{ messages[0].content[-1:] }}{{ messages[0]['content'].split('H')[1] }}", "ii"),
    ],
)
def test_what_templates_use(template: str, text: str) -> None:
    assert render(template, HI, tools=[{"name": "é<&>"}], enable_thinking=True) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if %}", "not valid, at line 1"),
        ("{{ messages | nothing }}", "not valid"),
        ("a\n{% endfor %}", "at line 2"),
        ("{{ raise_exception('no\nway') }}", "refused the messages: no way"),
        ("{{ 1 / 0 }}", "failed on these messages: division by zero"),
        ("{{ none + 'a' }}", "failed"),
        ("{{ missing.field }}", "failed"),
        ("{{ messages[0].content.__class__.__mro__ }}", "failed"),
        ("{{ messages.append(1) }}", "failed"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "failed"),
        ("{% for i in range(10**9) %}{% endfor %}", "loops"),
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "loops"),
        ("{{ 'a' * 10**9 }}", "more than"),
        ("{{ 10**9 * [1] }}", "more than"),
        ("{{ 9 ** (9 ** 9) }}", "power"),
        ("{{ 9 ** 99 ** 99 ** 99 }}", "power"),
        ("{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}", "wrote more than"),
        (
            "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "more than",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "failed"),
        ("{% include '/etc/passwd' %}", "failed"),
    ],
)
def test_templates_that_fail(template: str, message: str) -> None:
    start = time.process_time()  # its own: other processes may keep it waiting
    with pytest.raises(InputError, match=message) as raised:
        render(template, HI)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "at least one"),
        ("Hi", "must be a list"),
        ({"role": "user", "content": "Hi"}, "must be a list"),
        (None, "must be a list"),
        (["Hi"], "message 1 must be a dict"),
        ([*HI, {"content": "Hi"}], "message 2 must be a dict"),
        ([{"role": "user"}], "has no content"),
        ([{"role": "user", "content": 3}], "other than text"),
        ([{"role": "user", "content": [{"type": "image"}]}], "other than text"),
    ],
)
def test_bad_messages(messages: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        render(None, messages)


def test_parts_and_tool_calls() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "ab"
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert render("{{ messages[0].tool_calls[0].name }}", [call]) == "f"
