"""A server on a real Ray cluster of two nodes, both on this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from hf_folders import write_adapter
from running_server import Running, running, wait_until
from scripted_models import letters_tokenizer, scripted_model

from hightide import LLM
from hightide.errors import HightideError
from hightide.server.cluster.cluster import check_address
from hightide.server.cluster.replica import own_adapter

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is missing: pip install 'hightide[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

LLAMA = Path(__file__).parents[1] / "models" / "llama.gguf"
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
# Ray gives its processes the least priority by default, and other tests would starve them.
RAY_VARIABLES = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
KEY = "a-key-that-nobody-else-may-see"
RANDOM = np.random.default_rng(3)
PAIR = RANDOM.standard_normal((4, 96)), RANDOM.standard_normal((64, 4))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with one CPU each: one replica on each."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in RAY_VARIABLES.items():
            patch.setenv(name, value)
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=NODE)
        try:
            cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture(scope="module")
def server(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A random model, whose every token depends on all tokens before it."""
    folder = tmp_path_factory.mktemp("ray")
    tokenizer = letters_tokenizer(folder / "tokenizer.json")
    options = ("--tokenizer", tokenizer, "--device", "cpu", "--context", 250, "--max-sequences", 4, "--chunk", 32)
    adapter = os.path.relpath(write_adapter(folder / "style", {"model.layers.1.mlp.down_proj": PAIR}, lora_alpha=8))
    options += ("--lora", f"style={adapter}")
    with running(
        folder, LLAMA, *options, "--ray", "--replicas", 2, RAY_ADDRESS=cluster.address, HIGHTIDE_API_KEY=KEY
    ) as server:
        wait_until(lambda: server.log.read_text().count("is there") == 2, 60)
        yield server


def ask(server: Running, prompt: str, model: str = "llama", **options: Any) -> Any:
    more = {"max_tokens": 60, "temperature": 0, "extra_body": {"ignore_eos": True}} | options
    return server.client(api_key=KEY).completions.create(model=model, prompt=prompt, **more)


def metric(server: Running, name: str) -> dict[str, float]:
    """The values of a metric by the labels of each."""
    lines = server.get("/metrics", headers={"Authorization": f"Bearer {KEY}"}).text.splitlines()
    found = [line.removeprefix(name).rpartition(" ") for line in lines if line.startswith(name + "{")]
    return {labels: float(value) for labels, _, value in found}


def given(server: Running) -> list[int]:
    """Prompts that each replica got so far."""
    return [int(count) for _, count in sorted(metric(server, "hightide:replica_requests_total").items())]


def ask_all(server: Running, prompts: list[str], options: list[Any], begun: threading.Barrier | None) -> list[str]:
    """All prompts at once, as streams; `begun` is passed when each has a few tokens."""
    texts = [""] * len(prompts)

    def read(n: int) -> None:
        for count, chunk in enumerate(ask(server, prompts[n], stream=True, **options[n])):
            if count == 5 and begun is not None:
                begun.wait()
            texts[n] += chunk.choices[0].text

    threads = [threading.Thread(target=read, args=(n,)) for n in range(len(prompts))]
    for thread in threads:
        thread.start()
    if begun is not None:
        begun.wait()
    for thread in threads:
        thread.join(60)
    return texts


def test_the_api_is_the_same(server: Running) -> None:
    client = server.client(api_key=KEY)
    assert [model.id for model in client.models.list()] == ["llama", "style"]
    assert server.get("/ready").status_code == 200
    answer = ask(server, ["The sky", "The sea"], n=2, logprobs=2, max_tokens=3, temperature=1, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all(len(choice.logprobs.top_logprobs) == 3 for choice in answer.choices)
    chosen = ask(server, "x", extra_body={"guided_choice": ["yes", "no"]})
    assert chosen.choices[0].text in ("yes", "no")
    with pytest.raises(openai.BadRequestError, match="grammar cannot be used"):
        ask(server, "x", extra_body={"guided_regex": "("})
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="another").models.list()


def test_every_replica_has_the_adapters(server: Running, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "style", {"model.layers.1.mlp.down_proj": PAIR}, lora_alpha=8)
    prompts = ["The sky", "The sea", "A tree", "A house"]
    tokenizer = letters_tokenizer(tmp_path / "tokenizer.json")
    texts = {}
    for model, merge in (("llama", None), ("style", adapter)):
        with LLM(LLAMA, tokenizer=tokenizer, merge=merge, device="cpu", context=250) as llm:
            texts[model] = [llm.generate(prompt, max_tokens=8, ignore_eos=True).text for prompt in prompts]
        assert [ask(server, prompt, model, max_tokens=8).choices[0].text for prompt in prompts] == texts[model]
    assert texts["llama"] != texts["style"]


def test_replicas_share_the_load(server: Running) -> None:
    before = given(server)
    prompts = [f"{letter} goes first" for letter in "abcdefgh"]
    ask_all(server, prompts, [{"max_tokens": 30}] * len(prompts), None)
    assert [after - count for after, count in zip(given(server), before, strict=True)] == [4, 4]


def test_a_prefix_goes_where_it_was_read(server: Running) -> None:
    for prefix in ("A long beginning, which is read once. " * 3, "Another one of these, as long as it. " * 3):
        before = given(server)
        answers = [ask(server, f"{prefix}{n}", max_tokens=2) for n in range(4)]
        assert sorted(after - count for after, count in zip(given(server), before, strict=True)) == [0, 4]
        found = [answer.usage.prompt_tokens_details.cached_tokens for answer in answers]
        assert found[0] == 0 and min(found[1:]) >= 96


def test_no_process_of_the_cluster_knows_the_api_key(server: Running) -> None:
    found = [*processes(b"ray::"), *workers()]
    assert len(found) >= 5  # the controller, two replicas and two workers at least
    for process in (server.process.pid, *found):
        assert KEY.encode() not in _command(Path(f"/proc/{process}"))
    for process in found:
        assert KEY.encode() not in Path(f"/proc/{process}/environ").read_bytes()


def test_a_node_that_is_killed_loses_no_request(server: Running, cluster: Any) -> None:
    prompts = ["The sky", "Once upon a time", "A", "zzz", "What", "Well"]
    options: list[Any] = [{"temperature": n % 2, "seed": n, "max_tokens": 200} for n in range(len(prompts))]
    alone = ask_all(server, prompts, options, None)
    before = given(server)
    begun = threading.Barrier(len(prompts) + 1, action=lambda: kill_node(cluster))
    assert ask_all(server, prompts, options, begun) == alone
    assert sum(given(server)) - sum(before) == len(prompts) + len(prompts) // 2  # half of them twice
    assert server.log.read_text().count("is gone") == 1
    assert server.get("/ready").status_code == 200
    # Ray starts the replica again as soon as there is a machine for it.
    cluster.add_node(**NODE)
    wait_until(lambda: server.log.read_text().count("is there") == 3, 60)
    before = given(server)
    assert ask_all(server, prompts, options, None) == alone
    assert all(after > count for after, count in zip(given(server), before, strict=True))


def test_a_worker_that_is_killed_costs_a_pause(server: Running) -> None:
    alone = ask_all(server, ["The sun", "Nobody"], [{}, {}], None)
    begun = threading.Barrier(3, action=lambda: os.kill(workers()[0], signal.SIGKILL))
    assert ask_all(server, ["The sun", "Nobody"], [{}, {}], begun) == alone
    wait_until(lambda: "the worker ended (signal 9)" in server.log.read_text())


def test_the_end_leaves_nothing_on_the_cluster(server: Running, cluster: Any) -> None:
    stream = ask(server, "x", stream=True, max_tokens=200)
    next(stream)
    server.process.send_signal(signal.SIGTERM)
    *_, last = stream
    assert last.choices[0].finish_reason == "length"
    assert server.process.wait(60) == 0
    # On a busy machine Ray takes its time; replicas without a server end themselves after a minute.
    wait_until(lambda: not processes(b"ray::ServeReplica"), 120)
    assert len(cluster.list_all_nodes()) == 2


@pytest.fixture(scope="module")
def two_models(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of its own on the same cluster, without --replicas: one on each node."""
    folder = tmp_path_factory.mktemp("two")
    one = scripted_model(folder / "one.gguf", {"hello": ["one"], "long": ["la ", "li ~"]}, context=8000)
    two = scripted_model(folder / "two.gguf", {"hello": ["two"]}, context=8000)
    gone = scripted_model(folder / "gone.gguf", {"hello": ["gone"]})
    models = (
        "--model",
        f"gone={gone}",
        "--model",
        f"a={one}",
        "--model",
        f"b={two}",
        "--device",
        "cpu",
        "--context",
        8000,
    )
    with running(folder, *models, "--ray", RAY_ADDRESS=cluster.address) as server:
        yield server


def test_several_models_are_loaded_on_demand(two_models: Running) -> None:
    assert workers() == []
    for name, text in (("a", "one"), ("b", "two"), ("a", "one")):
        messages: Any = [{"role": "user", "content": "<|hello|>"}]
        reply = two_models.client().chat.completions.create(model=name, messages=messages)
        assert reply.choices[0].message.content == text


def test_a_client_that_goes_away_ends_its_answer_at_the_replica(two_models: Running) -> None:
    def running_answers() -> float:
        return sum(metric(two_models, "hightide:num_requests_running").values())

    messages: Any = [{"role": "user", "content": "<|long|>"}]
    stream = two_models.client().chat.completions.create(model="a", messages=messages, stream=True)
    next(stream)
    wait_until(lambda: running_answers() == 1)
    stream.close()
    wait_until(lambda: running_answers() == 0)
    (line,) = [line for line in two_models.log.read_text().splitlines() if "disconnected" in line]
    assert "+ 8000 tokens" not in line


def test_a_model_that_the_machines_do_not_have(two_models: Running) -> None:
    (two_models.log.parent / "gone.gguf").unlink()
    reply = two_models.post("/v1/completions", {"model": "gone", "prompt": "x"})
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == (
        "the model cannot be opened: cannot read gone.gguf: No such file or directory"
    )
    assert len([line for line in two_models.log.read_text().splitlines() if "cannot open the model" in line]) == 2
    reply = two_models.post("/v1/completions", {"model": "b", "prompt": "x"})
    assert reply.status_code == 200


@pytest.mark.parametrize("address", ["ray://127.0.0.1:1", "127.0.0.1", "127.0.0.1:1"])
def test_a_cluster_that_is_not_there(address: str) -> None:
    with pytest.raises(HightideError, match=f"RAY_ADDRESS.*{address}"):
        check_address(address)


def test_a_replica_takes_the_adapter_that_ray_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for numbers, options in (([3], {"device": "gpu:3"}), (["1"], {"device": "gpu:1"}), ([], {})):
        monkeypatch.setattr("ray.get_gpu_ids", lambda numbers=numbers: numbers)
        assert own_adapter() == options


def kill_node(cluster: Any) -> None:
    """All its processes at once, as when a machine loses its power."""
    (node,) = cluster.worker_nodes
    raylet = node.all_processes["raylet"][0].process.pid
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


def processes(begins: bytes) -> list[int]:
    """The process ids of the commands that begin so."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _command(folder).startswith(begins)]


def workers() -> list[int]:
    """Of replicas: other servers may run on this machine."""
    found = []
    for replica in processes(b"ray::ServeReplica"):
        for children in Path(f"/proc/{replica}/task").glob("*/children"):
            found += [int(child) for child in children.read_text().split()]
    return [worker for worker in found if b"hightide.server.worker" in _command(Path(f"/proc/{worker}"))]


def _command(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""
