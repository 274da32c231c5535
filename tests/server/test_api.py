"""The API as clients see it: a real server, a model that writes what it is told to, and the real `openai` client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from running_server import Running, running
from scripted_models import scripted_model

KEY = "a key for the tests"
SCRIPTS = {
    "hello": ["Hello", ", ", "wor", "ld", "!"],
    "tool": ["Wait. ", '<tool_call>{"na', 'me": "add", "argu', 'ments": {"a"', ': 1, "b":', " 2}}", "</tool_call>"],
    "two": ['[{"name": "add", ', '"arguments": {"a": 3}}, ', '{"name": "add", "arguments": ', '{"a": 4}}]'],
    "think": ["<think>", "\nhm", "mm\n", "</think>", "\n\n", "Yes", "."],
    "cafe": ["caf", "\udcc3", "\udca9", " au lait"],
    "stop": ["one ST", "xx STO", "P two"],
    "long": ["la ", "li ~"],
}
ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TOOLS: list[Any] = [{"type": "function", "function": ADD}]
CONTEXT = 128


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    model = scripted_model(folder / "scripted.gguf", SCRIPTS, CONTEXT)
    options = (
        "--device",
        "cpu",
        "--name",
        "scripted",
        "--max-sequences",
        4,
        "--chunk",
        32,
        "--max-body",
        "1 MB",
        "--log-json",
    )
    with running(folder, model, *options, HIGHTIDE_API_KEY=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return server.client(api_key=KEY)


def ask(client: openai.OpenAI, script: str, **options: Any) -> Any:
    """A chat whose answer is the script."""
    messages: Any = [{"role": "user", "content": f"Hi <|{script}|>"}]
    return client.chat.completions.create(model="scripted", messages=messages, **options)


def post(server: Running, path: str, **body: Any) -> httpx.Response:
    return server.post(path, {"model": "scripted", **body}, headers={"Authorization": f"Bearer {KEY}"})


def messages(script: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"<|{script}|>"}]


# ---- chat


def test_chat(client: openai.OpenAI) -> None:
    reply = ask(client, "hello")
    assert (reply.object, reply.model, len(reply.choices)) == ("chat.completion", "scripted", 1)
    choice = reply.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello, world!", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (4, 5, 9)
    assert (choice.logprobs, choice.message.tool_calls) == (None, None)


def test_streamed_chat(client: openai.OpenAI) -> None:
    chunks = list(ask(client, "hello", stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    *pieces, last, used = chunks
    assert pieces[0].choices[0].delta.role == "assistant"
    assert [piece.choices[0].delta.content for piece in pieces] == ["", *SCRIPTS["hello"]]
    assert all(piece.choices[0].finish_reason is None and piece.usage is None for piece in pieces)
    assert (last.choices[0].finish_reason, last.choices[0].delta.content) == ("stop", None)
    assert (used.choices, used.usage.completion_tokens) == ([], 5)


def test_the_end_of_a_stream(server: Running) -> None:
    reply = post(server, "/v1/chat/completions", messages=messages("hello"), stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = reply.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: "))["choices"] for event in events[:-2])


def test_no_half_characters(client: openai.OpenAI) -> None:
    assert [chunk.choices[0].delta.content for chunk in ask(client, "cafe", stream=True)][1:-1] == [
        "caf",
        "é",
        " au lait",
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_of_a_stop_string(client: openai.OpenAI, stream: bool) -> None:
    reply = ask(client, "stop", stop="STOP", stream=stream)
    choices = [chunk.choices[0] for chunk in reply] if stream else reply.choices
    text = "".join(choice.delta.content or "" for choice in choices) if stream else choices[0].message.content
    assert (text, choices[-1].finish_reason) == ("one STxx ", "stop")


def test_max_tokens(client: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        reply = ask(client, "hello", **{name: 2})
        assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Hello, ", "length")
    full = ask(client, "long")  # until the context is full
    assert (full.choices[0].finish_reason, full.usage.total_tokens >= CONTEXT) == ("length", True)


def test_several_answers(client: openai.OpenAI) -> None:
    reply = ask(client, "hello", n=3)
    assert [(choice.index, choice.message.content) for choice in reply.choices] == [
        (n, "Hello, world!") for n in range(3)
    ]
    assert reply.usage.completion_tokens == 15
    texts = ["", ""]
    for chunk in ask(client, "hello", n=2, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == ["Hello, world!"] * 2


def test_logprobs(client: openai.OpenAI) -> None:
    content = ask(client, "hello", logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert [entry.token for entry in content] == SCRIPTS["hello"]
    assert all(-0.01 < entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in content)
    assert content[0].bytes == list(b"Hello") and content[0].top_logprobs[0].token == "Hello"
    assert ask(client, "hello", logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    streamed = [chunk.choices[0].logprobs for chunk in ask(client, "cafe", logprobs=True, stream=True)]
    assert [len(each.content) for each in streamed if each] == [1, 2, 1]


def test_sampling_options_reach_the_engine(client: openai.OpenAI) -> None:
    """A bias of -100 outweighs the script."""
    first = client.post("/../tokenize", cast_to=object, body={"model": "scripted", "prompt": "x"})
    assert first == {"tokens": [ord("x")], "count": 1, "max_model_len": CONTEXT}
    reply = ask(client, "hello", logit_bias={"120": 100}, max_tokens=3, temperature=0)
    assert reply.choices[0].message.content == "xxx"
    options = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True}
    more = ask(client, "hello", max_tokens=8, seed=-1, top_p=0.0, presence_penalty=0.1, extra_body=options)
    assert more.usage.completion_tokens == 8
    assert ask(client, "hello", extra_body={"stop_token_ids": [ord("!")]}).choices[0].message.content == "Hello, world"


def test_thoughts(client: openai.OpenAI) -> None:
    reply = ask(client, "think")
    message = reply.choices[0].message
    assert (message.reasoning_content, message.content) == ("hmmm", "Yes.")
    assert reply.usage.completion_tokens_details.reasoning_tokens == 3
    deltas = [chunk.choices[0].delta for chunk in ask(client, "think", stream=True)]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "hmmm"
    assert "".join(delta.content or "" for delta in deltas) == "Yes."


# ---- tools


def test_tool_calls(client: openai.OpenAI) -> None:
    choice = ask(client, "tool", tools=TOOLS).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Wait. ")
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "add", {"a": 1, "b": 2})
    assert call.id.startswith("call_")


def test_streamed_tool_calls(client: openai.OpenAI) -> None:
    chunks = [chunk.choices[0] for chunk in ask(client, "tool", tools=TOOLS, stream=True)]
    calls = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    assert (calls[0].id[:5], calls[0].function.name, calls[0].function.arguments) == ("call_", "add", "")
    assert [call.function.arguments for call in calls[1:]] == ['{"a"', ': 1, "b":', " 2}"]
    assert all(call.index == 0 and call.id is None and call.function.name is None for call in calls[1:])
    assert "".join(chunk.delta.content or "" for chunk in chunks) == "Wait. "
    assert chunks[-1].finish_reason == "tool_calls"


def test_parallel_calls_or_one(client: openai.OpenAI) -> None:
    both = ask(client, "two", tools=TOOLS).choices[0].message.tool_calls
    assert [json.loads(call.function.arguments) for call in both] == [{"a": 3}, {"a": 4}]
    assert both[0].id != both[1].id
    alone = ask(client, "two", tools=TOOLS, parallel_tool_calls=False).choices[0]
    assert (len(alone.message.tool_calls), alone.finish_reason) == (1, "tool_calls")


def test_tools_that_may_not_be_called_are_text(client: openai.OpenAI) -> None:
    script = "".join(SCRIPTS["tool"])
    assert ask(client, "tool", tools=TOOLS, tool_choice="none").choices[0].message.content == script
    assert ask(client, "tool").choices[0].message.content == script
    other: list[Any] = [{"type": "function", "function": {**ADD, "name": "other"}}]
    assert ask(client, "tool", tools=other).choices[0].message.content == script


def test_the_template_is_given_tools_calls_and_results(server: Running) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    turns = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "c"},
    ]
    counted = post(server, "/tokenize", messages=turns, tools=TOOLS).json()
    assert bytes(counted["tokens"]).decode() == "[add]abc"


# ---- the other endpoints


def test_completions(client: openai.OpenAI) -> None:
    def complete(prompt: Any, **options: Any) -> Any:
        return client.completions.create(model="scripted", prompt=prompt, **options)

    start = ord("x")
    hello = post_tokens(client, "hello")
    assert complete(hello).choices[0].text == "Hello, world!"
    several = complete([hello, [start], hello], max_tokens=2, n=2)
    assert [choice.text for choice in several.choices] == ["Hello, "] * 2 + [""] * 2 + ["Hello, "] * 2
    assert [choice.finish_reason for choice in several.choices] == ["length"] * 2 + ["stop"] * 2 + ["length"] * 2
    assert complete("ab", echo=True, max_tokens=1).choices[0].text == "ab"
    assert complete(hello, best_of=3).choices[0].text == "Hello, world!"
    report = complete(hello, logprobs=1, max_tokens=3).choices[0].logprobs
    assert (report.tokens, report.text_offset) == (["Hello", ", ", "wor"], [0, 5, 7])
    assert list(report.top_logprobs[0]) == ["Hello"] and report.token_logprobs[0] <= 0
    chunks = list(complete(hello, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == "Hello, world!"
    assert (chunks[-2].choices[0].finish_reason, chunks[-1].usage.completion_tokens) == ("stop", 5)


def post_tokens(client: openai.OpenAI, script: str) -> list[int]:
    body = {"model": "scripted", "messages": messages(script)}
    counted: Any = client.post("/../tokenize", cast_to=object, body=body)
    ids: list[int] = counted["tokens"]
    return ids


def test_responses(client: openai.OpenAI) -> None:
    reply = client.responses.create(model="scripted", input="Hi <|hello|>", instructions="Be kind.")
    assert (reply.status, reply.output_text, reply.object) == ("completed", "Hello, world!", "response")
    assert reply.usage is not None and reply.usage.output_tokens == 5
    thinking = client.responses.create(model="scripted", input=[{"role": "user", "content": "<|think|>"}])
    assert [item.type for item in thinking.output] == ["reasoning", "message"]
    short = client.responses.create(model="scripted", input="<|hello|>", max_output_tokens=1)
    assert (short.status, short.incomplete_details and short.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )


def test_responses_with_tools(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", **ADD}]
    reply = client.responses.create(model="scripted", input="<|tool|>", tools=tools)
    call: Any = reply.output[1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 1, "b": 2})
    turns: Any = [
        {"role": "user", "content": "one"},
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "<|hello|>"},
    ]
    assert client.responses.create(model="scripted", input=turns, tools=tools).output_text == "Hello, world!"


def test_streamed_responses(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", **ADD}]
    with client.responses.stream(model="scripted", input="<|tool|>", tools=tools) as stream:
        events = list(stream)
        final: Any = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 2
    arguments = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(arguments) == final.output[1].arguments == '{"a": 1, "b": 2}'
    raw = client.responses.create(model="scripted", input="<|tool|>", tools=tools, stream=True)
    assert [event.sequence_number for event in raw] == list(range(len(kinds)))


def test_tokens(server: Running) -> None:
    assert post(server, "/tokenize", content="ab").json()["tokens"] == [97, 98]
    assert post(server, "/detokenize", tokens=[97, 98]).json()["prompt"] == "ab"
    assert post(server, "/detokenize", tokens=[10**9]).status_code == 400


def test_models_and_health(server: Running, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").object == "model"
    assert server.get("/health").json() == {"status": "ok"}
    assert server.get("/ready").status_code == 200
    assert server.get("/").text.startswith("<!doctype html>")


def metrics(server: Running) -> dict[str, str]:
    text = server.get("/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_tokens_are_counted_while_they_are_made(server: Running, client: openai.OpenAI) -> None:
    name = 'hightide:generation_tokens_total{model_name="scripted"}'
    before = float(metrics(server).get(name, 0))
    stream = ask(client, "long", stream=True, max_tokens=100)
    for _ in range(5):
        next(stream)
    during = float(metrics(server)[name])
    made = len([chunk for chunk in stream if chunk.choices[0].delta.content])
    assert made > 0 and before < during <= float(metrics(server)[name]) == before + 100


def test_metrics_and_log(server: Running, client: openai.OpenAI) -> None:
    ask(client, "hello", user="someone")
    values = metrics(server)
    label = '{model_name="scripted"}'
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_hits_total"):
        assert float(values[f"hightide:{name}{label}"]) >= 0
    assert float(values[f"hightide:generation_tokens_total{label}"]) >= 5
    assert float(values[f"hightide:time_to_first_token_seconds_count{label}"]) >= 1
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    (line,) = [line for line in lines if line.get("user") == "someone"]
    assert (line["status"], line["new_tokens"], line["outcome"]) == (200, 5, "stop")
    assert KEY not in server.log.read_text()


# ---- what is refused

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": ["x"]}, "messages[0]"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": "x", "other": 1}]}, "messages[0].other"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"max_tokens": 100_000}, "messages"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"stop": [""]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"other": 1}}, "stream_options.other"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"1": "x"}}, "logit_bias.1"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "other"}]}, "tools[0].type"),
    ({"tools": TOOLS * 2}, "tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "sub"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"store": True}, "store"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"mirostat": 2}, "mirostat"),
]


@pytest.mark.parametrize(("body", "parameter"), REFUSED, ids=[json.dumps(body)[:60] for body, _ in REFUSED])
def test_parameters_are_refused_by_name(server: Running, body: dict[str, Any], parameter: str) -> None:
    reply = post(server, "/v1/chat/completions", **{"messages": messages("hello")} | body)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", parameter)
    assert parameter.rpartition(".")[2].split("[")[0] in error["message"] or parameter == "messages"


def test_null_is_as_good_as_left_out(server: Running) -> None:
    absent = dict.fromkeys(("temperature", "stop", "tools", "tool_choice", "n", "mirostat", "response_format", "seed"))
    reply = post(server, "/v1/chat/completions", messages=messages("hello"), **absent)
    assert reply.json()["choices"][0]["message"]["content"] == "Hello, world!"


HOSTILE: list[tuple[bytes, str]] = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[]", "must be a JSON object"),
    (b'{"model": "scripted", "temperature": NaN}', "NaN"),
    (b'{"model": "scripted", "messages": [{"role": "user", "content": "x"}], "temperature": 1e999}', "temperature"),
    (b'{"model": "scripted", "messages": [{"role": "user", "content": "x"}], "seed": 1' + b"0" * 5000 + b"}", "JSON"),
    (b'{"a":' * 100_000, "not JSON"),
    (b'{"model": "scripted", "messages": [{"role": "user", "content": "\\ud800"}]}', "Unicode"),
    (b'{"model": {"a": 1}}', "model"),
]


@pytest.mark.parametrize(("body", "says"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bodies(server: Running, body: bytes, says: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    reply = server.http.post(f"{server.url}/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 400 and says in reply.json()["error"]["message"], reply.text
    assert "Traceback" not in reply.text


def test_a_deep_schema_is_no_harm(server: Running) -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"a": deep}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    reply = post(server, "/v1/chat/completions", messages=messages("hello"), tools=[tool])
    assert reply.status_code in (200, 400), reply.text


def test_errors_of_each_kind(server: Running, client: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        ask(server.client(api_key="wrong"), "hello")
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "word " * 200}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="the model scripted gives answers, not embeddings") as no_vector:
        client.embeddings.create(model="scripted", input="x")
    assert (no_vector.value.code, no_vector.value.param) == ("model_not_suited", "model")
    large = post(server, "/v1/chat/completions", messages=messages("hello"), user="x" * 1_100_000)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    with_key = {"Authorization": f"Bearer {KEY}"}
    assert server.get("/v1/nothing", headers=with_key).json()["error"]["type"] == "invalid_request_error"
    assert server.get("/v1/chat/completions", headers=with_key).status_code == 405
    other = server.get("/health", headers={"Origin": "http://elsewhere.example"})
    assert other.status_code == 403


def test_the_queue_has_a_bound(server: Running) -> None:
    """4 sequences and 1024 that wait; 17 prompts with 64 answers each are more."""
    reply = post(server, "/v1/completions", prompt=[[97]] * 17, n=64)
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "5"), reply.text
    assert post(server, "/v1/chat/completions", messages=messages("hello")).status_code == 200
