"""LoRA adapters: merged as PEFT merges them, from its folders and from GGUF files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode import DYNAMIC, GREEDY, error_of_range
from gguf import GGUFWriter
from hf_folders import folder_tensors, write_adapter, write_folder
from test_architectures import model
from test_folders import CONFIGS, folder_of

from hightide import LLM, Engine
from hightide.errors import HightideError, InputError, ProgramError, UnsupportedError
from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.formats.lora import EMBEDDING, checked_adapters, merged, named_adapters, read_adapter
from hightide.formats.model_file import read_model
from hightide.formats.model_tensors import of_rows, read_rows
from hightide.gpu.device import Device
from hightide.graph.graph import Graph
from hightide.llm.batch import Batch, Rows
from hightide.llm.decoder import RaggedDecoder
from hightide.llm.models import build_graph
from hightide.llm.models.model_builder import INPUTS, MAX_KEEP
from hightide.ops.blocks.layout import dequantize
from hightide.runtime.cpu_session import CpuSession
from hightide.runtime.gpu_session import GpuSession
from hightide.wgsl.shader import Shader

TARGETS = {
    "llama": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj"),
    "gemma3": ("self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj"),
    "phi3": ("self_attn.qkv_proj", "mlp.gate_up_proj"),
}
RANK, ALPHA = 4, 6.0


def pairs(name: str, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(A [rank, in], B [out, rank]) by the module's name in transformers."""
    rng = np.random.default_rng(seed)
    made = {}
    for tensor, weight in folder_tensors(model(name)).items():
        module = tensor.removesuffix(".weight")
        if module.endswith(TARGETS[name]):
            down = rng.standard_normal((RANK, weight.shape[1])).astype(np.float32)
            made[module] = down, rng.standard_normal((weight.shape[0], RANK)).astype(np.float32)
    return made


def peft_folder(folder: Path, name: str, seed: int = 0, **changes: Any) -> Path:
    """As `PeftModel.save_pretrained` writes it."""
    return write_adapter(folder, pairs(name, seed), **{"r": RANK, "lora_alpha": ALPHA} | changes)


def merged_folder(folder: Path, name: str, scales: dict[int, float]) -> GgufFile:
    """The model with W + scale * B @ A, in transformers' own order of rows; `scales` by the seed of the adapter."""
    tensors = folder_tensors(model(name))
    for seed, scale in scales.items():
        for module, (down, up) in pairs(name, seed).items():
            tensors[f"{module}.weight"] = tensors[f"{module}.weight"] + np.float32(scale) * (up @ down)
    sizes = {"num_hidden_layers": 2, "max_position_embeddings": 256, "vocab_size": 131}
    return read_model(write_folder(folder, sizes | CONFIGS[name], tensors))


def array(tensor: GgufTensor) -> np.ndarray:
    return dequantize(tensor.data, tensor.type, tensor.dims)


def assert_same(ours: GgufFile, theirs: GgufFile, tolerance: float = 1e-5) -> None:
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, tensor in theirs.tensors.items():
        np.testing.assert_allclose(array(ours.tensors[name]), array(tensor), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", TARGETS)
def test_a_peft_folder_is_merged_as_peft_does(name: str, tmp_path: Path) -> None:
    base = read_model(folder_of(name, tmp_path))
    adapter = read_adapter(peft_folder(tmp_path / "adapter", name), base)
    assert len(adapter.changes) == len(pairs(name))
    assert_same(merged(base, [(adapter, 1.0)]), merged_folder(tmp_path / "merged", name, {0: ALPHA / RANK}))


def test_several_with_weights(tmp_path: Path) -> None:
    base = read_model(folder_of("llama", tmp_path))
    first = read_adapter(peft_folder(tmp_path / "first", "llama", 0), base)
    second = read_adapter(peft_folder(tmp_path / "second", "llama", 1, use_rslora=True), base)
    expected = merged_folder(tmp_path / "merged", "llama", {0: 0.5 * ALPHA / RANK, 1: -2 * ALPHA / RANK**0.5})
    assert_same(merged(base, [(first, 0.5), (second, -2.0)]), expected, 1e-4)


def gguf_adapter(path: Path, peft: Path, base: GgufFile, **fields: Any) -> Path:
    """As convert_lora_to_gguf.py writes it: the matrices of q and k have their rows in GGUF's order."""
    writer = GGUFWriter(path, base.architecture)
    given = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA} | fields
    for key, value in given.items():
        (writer.add_string if isinstance(value, str) else writer.add_float32)(key, value)
    for name, change in read_adapter(peft, base).changes.items():
        writer.add_tensor(f"{name}.lora_a", array(change.down))
        writer.add_tensor(f"{name}.lora_b", array(change.up))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("alpha, scale", [(ALPHA, ALPHA / RANK), (0.0, 1.0)])
def test_a_gguf_adapter(alpha: float, scale: float, tmp_path: Path) -> None:
    base = read_model(folder_of("llama", tmp_path))
    peft = peft_folder(tmp_path / "adapter", "llama")
    path = gguf_adapter(tmp_path / "lora.gguf", peft, base, **{"adapter.lora.alpha": alpha})
    expected = merged_folder(tmp_path / "merged", "llama", {0: scale})
    assert_same(merged(base, [(read_adapter(path, base), 1.0)]), expected)


def test_an_adapter_on_a_quantised_model(tmp_path: Path) -> None:
    """What is not float32 becomes float16."""
    base = model("llama")
    adapter = read_adapter(peft_folder(tmp_path / "adapter", "llama"), base)
    made = merged(base, [(adapter, 1.0)])
    assert {made.tensors[name].type for name in adapter.changes} <= {"F16", "F32"}
    assert_same(made, merged_folder(tmp_path / "merged", "llama", {0: ALPHA / RANK}), 1e-2)


def test_merged_adapters_change_answers(tmp_path: Path) -> None:
    folder, adapter = folder_of("llama", tmp_path), peft_folder(tmp_path / "adapter", "llama")
    options: dict[str, Any] = {"device": "cpu", "context": 48}
    answers = []
    for merge in (None, {str(adapter): 0.0}, adapter):
        with LLM(folder, merge=merge, **options) as llm:
            answers.append(llm.generate([5, 6, 7], max_tokens=8, ignore_eos=True).tokens)
    merged_folder(tmp_path / "merged", "llama", {0: ALPHA / RANK})
    with LLM(tmp_path / "merged", **options) as llm:
        expected = llm.generate([5, 6, 7], max_tokens=8, ignore_eos=True).tokens
    assert answers[0] == answers[1] != answers[2] == expected


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"use_dora": True}, UnsupportedError),
        ({"peft_type": "IA3"}, UnsupportedError),
        ({"bias": "all"}, UnsupportedError),
        ({"lora_alpha": "much"}, ProgramError),
        ({"alpha_pattern": 3}, ProgramError),
        ({"alpha_pattern": {"(a+)+": 3}}, UnsupportedError),
        ({"alpha_pattern": {"(": 3}}, ProgramError),
        ({"modules_to_save": ["lm_head"]}, UnsupportedError),
        ({"lora_bias": True}, UnsupportedError),
        ({"alora_invocation_tokens": [1, 2]}, UnsupportedError),
    ],
)
def test_adapters_that_are_refused(changes: dict[str, Any], error: type[HightideError], tmp_path: Path) -> None:
    base = read_model(folder_of("llama", tmp_path))
    with pytest.raises(error):
        read_adapter(peft_folder(tmp_path / "adapter", "llama", **changes), base)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    peft = peft_folder(tmp_path / "adapter", "gemma3")
    with pytest.raises(UnsupportedError, match="its architecture does not have"):
        read_adapter(peft, model("llama"))  # which has fewer layers
    with pytest.raises(ProgramError, match="for another model"):
        read_adapter(peft_folder(tmp_path / "llama", "llama"), model("llama_tied"))
    path = gguf_adapter(tmp_path / "lora.gguf", peft, model("gemma3"))
    with pytest.raises(ProgramError, match="for a gemma3 model"):
        read_adapter(path, model("llama"))
    with pytest.raises(ProgramError, match="not a LoRA adapter"):
        read_adapter(Path(__file__).parent / "llama.gguf", model("llama"))
    with pytest.raises(InputError, match="neither"):
        read_adapter(tmp_path, model("llama"))


@pytest.mark.parametrize("adapters", [[3], {"a": "b"}, {"a": float("nan")}])
def test_options_that_name_no_adapters(adapters: Any) -> None:
    with pytest.raises(InputError):
        checked_adapters(adapters)


# ---- as PEFT itself computes; see make_peft.py

PEFT, FOLDERS = Path(__file__).parent / "peft", Path(__file__).parent / "folders"
PEFT_MODELS = {"llama": "llama", "llama_second": "llama", "llama_ends": "llama", "gpt2": "gpt2"}
PEFT_MODELS |= {"gpt_neox": "gpt_neox", "falcon": "falcon_new"}
PEFT_SUM = {"llama": 0.5, "llama_second": 1.5}


def in_float32(name: str) -> GgufFile:
    """A model of `folders/`, whose merged weights are not rounded to halves then."""
    base = read_model(FOLDERS / name)
    tensors = {
        tensor.name: of_rows(tensor, "F32", tensor.dims, lambda first, count, of=tensor: read_rows(of, first, count))
        for tensor in base.tensors.values()
    }
    return replace(base, tensors=tensors)


def error_of_peft(name: str, graph: Graph, *more: np.ndarray) -> float:
    with np.load(PEFT / f"{name}.npz") as arrays:
        tokens, expected = arrays["tokens"][:MAX_KEEP], arrays["logits"][:MAX_KEEP]
    dynamic, names = ([True, True], ["adapted", "strengths"]) if more else ([], [])
    session = CpuSession(graph, [*DYNAMIC, *dynamic], [*INPUTS, *names], dtype="float64")
    position, keep = np.array([0], np.int32), np.array([len(tokens)], np.int32)
    logits, _ = session.run([tokens[None], position, keep, GREEDY, *more])
    return error_of_range(logits[0], expected)


@pytest.mark.parametrize("name", PEFT_MODELS)
def test_merged_logits_are_those_of_peft(name: str) -> None:
    base = in_float32(PEFT_MODELS[name])
    made = merged(base, [(read_adapter(PEFT / name, base), 1.0)])
    assert error_of_peft(name, build_graph(base, 64, 32)) > 1e-2  # the adapter matters
    assert error_of_peft(name, build_graph(made, 64, 32)) <= 1e-6


def test_the_sum_of_adapters_is_that_of_peft() -> None:
    base = in_float32("llama")
    both = [(read_adapter(PEFT / name, base), weight) for name, weight in PEFT_SUM.items()]
    assert error_of_peft("llama_sum", build_graph(merged(base, both), 64, 32)) <= 1e-6


@pytest.mark.parametrize("name", ["llama", "llama_second", "gpt_neox", "falcon", "llama_sum"])
def test_switched_logits_are_those_of_peft(name: str) -> None:
    base = read_model(FOLDERS / PEFT_MODELS.get(name, "llama"))
    weights = PEFT_SUM if name == "llama_sum" else {name: 1.0}
    graph = build_graph(base, 64, 32, adapters=[read_adapter(PEFT / one, base) for one in weights])
    strengths = np.array([list(weights.values())] * MAX_KEEP, np.float32)
    assert error_of_peft(name, graph, np.arange(MAX_KEEP, dtype=np.int32), strengths) <= 1e-6


def test_a_gguf_adapter_of_embeddings(tmp_path: Path) -> None:
    """Whose lora_a holds a row for each token."""
    base = in_float32("llama")
    change = read_adapter(PEFT / "llama_ends", base).changes[EMBEDDING]
    writer = GGUFWriter(tmp_path / "ends.gguf", "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", change.scale * change.down.dims[0])
    writer.add_tensor(f"{EMBEDDING}.lora_a", array(change.up))
    writer.add_tensor(f"{EMBEDDING}.lora_b", np.ascontiguousarray(array(change.down).T))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = read_adapter(tmp_path / "ends.gguf", base).changes[EMBEDDING]
    for ours, theirs in ((read.up, change.up), (read.down, change.down)):
        np.testing.assert_array_equal(array(ours), array(theirs))
    assert read.scale == pytest.approx(change.scale)


def test_embeddings_of_a_model_with_other_tokens_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="its model was given other tokens"):
        read_adapter(PEFT / "llama_ends", model("llama"))


# ---- switched by answer


@pytest.fixture(scope="module")
def with_two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    """A model and two adapters."""
    folder = tmp_path_factory.mktemp("adapters")
    names = {"first": 0, "second": 1}
    return folder_of("llama", folder), {name: peft_folder(folder / name, "llama", n) for name, n in names.items()}


PROMPT = [5, 6, 7, 8, 9, 11, 4, 3, 2, 77, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]  # more than a page
CHOICES: list[dict[str, float]] = [{}, {"first": 1.0}, {"second": 0.5}, {"first": -1.0, "second": 2.0}, {"first": 0.0}]


def merged_answers(folder: Path, adapters: dict[str, Path], device: str | None) -> list[list[int]]:
    """What a model gives that each choice is merged into."""
    answers = []
    for choice in CHOICES:
        merge = {str(adapters[name]): weight for name, weight in choice.items()}
        with LLM(folder, merge=merge, device=device, context=64, kv="f32") as llm:
            answers.append(llm.generate(PROMPT, max_tokens=8, ignore_eos=True).tokens)
    assert len({tuple(answer) for answer in answers}) == len(CHOICES) - 1
    return answers


def test_answers_switch_adapters(with_two: tuple[Path, dict[str, Path]]) -> None:
    """One model, in any order, over the keys and values of other adapters."""
    folder, adapters = with_two
    expected = merged_answers(folder, adapters, "cpu")
    with LLM(folder, adapters=adapters, device="cpu", context=64) as llm:
        for n in (0, 1, 1, 2, 0, 3, 4, 1):
            answer = llm.generate(PROMPT, max_tokens=8, ignore_eos=True, adapters=CHOICES[n])
            assert answer.tokens == expected[n]
            if n == 4:
                assert answer.stats.reused_tokens == 0
        with pytest.raises(InputError, match="no adapter 'third'; it was opened with first, second"):
            llm.generate(PROMPT, adapters={"third": 1.0})
        with pytest.raises(InputError, match="finite number"):
            llm.generate(PROMPT, adapters={"first": float("inf")})


@pytest.mark.gpu
def test_one_batch_has_rows_of_many_adapters(with_two: tuple[Path, dict[str, Path]], device: Device) -> None:
    folder, adapters = with_two
    expected = merged_answers(folder, adapters, None)
    with Engine(folder, adapters=list(adapters.values()), context=64, kv="f32", max_sequences=8) as engine:
        requests = [
            engine.submit(PROMPT, max_tokens=8, ignore_eos=True, adapters=choice) for choice in (*CHOICES, *CHOICES)
        ]
        answers = [request.result().tokens for request in requests]
    assert answers == expected * 2


@pytest.mark.gpu
def test_the_adapters_of_others_change_no_bit(with_two: tuple[Path, dict[str, Path]], device: Device) -> None:
    """Of a reproducible answer: with theirs in a step, linears take other dispatches."""
    folder, adapters = with_two
    options: dict[str, Any] = {"max_tokens": 8, "ignore_eos": True, "logprobs": 2}
    with Engine(folder, adapters=adapters, context=64, kv="f32", max_sequences=4, reproducible=True) as engine:
        alone = engine.submit(PROMPT, **options).result().pieces
        requests = [engine.submit(PROMPT, adapters=choice, **options) for choice in CHOICES[:4]]
        together, *_ = [request.result().pieces for request in requests]
    assert [piece.logprob for piece in together] == [piece.logprob for piece in alone]


def dispatches(llm: LLM, tokens: list[int], strengths: np.ndarray | None = None) -> list[tuple[Shader, Any]]:
    """The kernels of a step, each with its workgroups."""
    assert isinstance(llm.decoder, RaggedDecoder) and isinstance(llm.decoder.session, GpuSession)
    batch = Batch([Rows(tokens, 0, [0, 1], strengths=strengths)])
    recording = llm.decoder.session.recording(llm.decoder.inputs(batch))
    return [(command.pipeline.shader, command.groups) for command in recording.commands]


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [PROMPT[:1], PROMPT], ids=["decode", "prompt"])
def test_a_step_without_adapters_has_the_dispatches_of_a_model_without(
    tokens: list[int], with_two: tuple[Path, dict[str, Path]], device: Device
) -> None:
    folder, adapters = with_two
    with LLM(folder, context=64) as llm:
        expected = dispatches(llm, tokens)
    with LLM(folder, adapters=adapters, context=64) as llm:
        assert dispatches(llm, tokens) == expected
        adapted = dispatches(llm, tokens, np.ones(2, np.float32))
    assert sum("low_rank" in shader.name for shader, _ in adapted) == 2 * len(pairs("llama"))


def test_what_cannot_be_switched_is_refused(tmp_path: Path) -> None:
    folder = folder_of("llama", tmp_path)
    pair = np.ones((2, 64), np.float32), np.ones((131, 2), np.float32)
    adapter = write_adapter(tmp_path / "head", {"lm_head": pair}, lora_alpha=1)
    with pytest.raises(UnsupportedError, match=r"output\.weight, which answers cannot switch; merge it"):
        LLM(folder, adapters=adapter, device="cpu", context=48)
    with LLM(folder, merge=adapter, device="cpu", context=48) as llm:
        llm.generate([5], max_tokens=1)


def test_names_of_adapters(tmp_path: Path) -> None:
    folder = tmp_path / "style-v1.5"
    folder.mkdir()
    assert named_adapters([folder, "x/facts.gguf"]) == {"style-v1.5": folder, "facts": Path("x/facts.gguf")}
    assert named_adapters({"own": folder}) == {"own": folder}


@pytest.mark.parametrize("adapters", [[3], {3: "a"}, ["x/a", "y/a"]])
def test_names_that_cannot_be(adapters: Any) -> None:
    with pytest.raises(InputError):
        named_adapters(adapters)
