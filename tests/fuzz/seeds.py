"""The files that are damaged, by kind: those of the tests, and small ones made here."""

from __future__ import annotations

import base64
import io
import json
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from encoder_folders import ENCODERS, encoder_folder
from gguf import GGMLQuantizationType, quants
from hf_folders import folder_tensors, safetensors_bytes

from fuzz.gguf_parts import Field, GgufParts, Info
from fuzz.op_graphs import op_graphs
from hightide import LLM
from hightide.folders import cache_folder
from hightide.formats.gguf import read_gguf
from hightide.llm.models import ARCHITECTURES
from hightide.llm.pretokenizers import BYTES

CONFORMANCE = Path(__file__).parents[1] / "conformance"
SAVED_FOLDERS = CONFORMANCE.with_name("models") / "folders"
EXTERNAL = CONFORMANCE / "external" / "external.ptd"  # the data of external.pte
LARGEST = 16_500  # bytes: small files are read often
WIDTH, VOCABULARY = 32, 300
# What the layers of some architectures have in place of Llama's matrices and norms.
JOINED_QKV = ("phi3", "gpt2", "gptneox", "falcon")
JOINED_GATE = ("phi3", "glm4")
WITHOUT_GATE = ("phi2", "gpt2", "gptneox", "falcon", "starcoder2")
ONE_NORM = ("phi2", "falcon", "command-r", "cohere2")
NORMS_AFTER = ("gemma2", "gemma3", "gemma3n", "glm4", "olmo2")


@cache
def seeds(kind: str) -> dict[str, bytes]:
    """Whole files of a kind, by name."""
    return dict(_MAKERS[kind]())


def _programs() -> Iterator[tuple[str, bytes]]:
    for path in sorted(CONFORMANCE.rglob("*.pte")):
        if path.stat().st_size <= LARGEST:
            yield path.name, path.read_bytes()
    with zipfile.ZipFile(CONFORMANCE / "catalogue.zip") as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".pte") and archive.getinfo(name).file_size <= LARGEST:
                yield name, archive.read(name)


def _data_files() -> Iterator[tuple[str, bytes]]:
    yield EXTERNAL.name, EXTERNAL.read_bytes()


# ---- GGUF


def _models() -> Iterator[tuple[str, bytes]]:
    for architecture in ARCHITECTURES:
        yield f"{architecture}.gguf", tiny_model(architecture).encoded()


def tiny_model(architecture: str) -> GgufParts:
    """A model of one layer with a vocabulary, in several block types."""
    parts = GgufParts([], [], b"")
    for key, value in _fields(architecture):
        parts.fields.append(Field.of(key, value))
    types = ("Q8_0", "Q4_0", "F16", "Q4_1", "F32")
    for n, (name, dims) in enumerate(_tensors(architecture)):
        kind = types[n % len(types)] if len(dims) == 2 and not dims[1] % 32 else "F32"
        array = np.resize(np.arange(-8, 9, dtype=np.float32) / 64, dims)
        data = quants.quantize(array, GGMLQuantizationType[kind]).tobytes()
        parts.infos.append(
            Info(name.encode(), tuple(reversed(dims)), GGMLQuantizationType[kind].value, len(parts.data))
        )
        parts.data += data + bytes(-len(data) % 32)
    return parts


def _fields(architecture: str) -> Iterator[tuple[str, Any]]:
    yield "general.architecture", architecture
    numbers = {
        "context_length": 64,
        "embedding_length": WIDTH,
        "block_count": 1,
        "feed_forward_length": WIDTH,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "attention.key_length": WIDTH // 2,
        "attention.value_length": WIDTH // 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        "logit_scale": 0.5,
        "rope.freq_base": 10_000.0,
        "rope.dimension_count": WIDTH // 2,
        "attention.sliding_window": 5,
    }
    for key, value in numbers.items():
        yield f"{architecture}.{key}", value
    if architecture == "qwen2":
        yield "qwen2.rope.scaling.type", "yarn"
        yield "qwen2.rope.scaling.factor", 4.0
        yield "qwen2.rope.scaling.original_context_length", 16
    if architecture == "gemma3n":
        yield "gemma3n.embedding_length_per_layer_input", WIDTH
        yield "gemma3n.activation_sparsity_scale", [1.25]
        yield "gemma3n.attention.shared_kv_layers", 0
    sentencepiece = architecture in ("llama", "gemma", "gemma2", "gemma3", "gemma3n", "phi3")
    yield "tokenizer.ggml.model", "llama" if sentencepiece else "gpt2"
    if sentencepiece:
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), "▁", "a", "▁a", "b", "ab", "▁ab"]
        tokens += [f"▁w{n}" for n in range(VOCABULARY - len(tokens))]
        yield "tokenizer.ggml.tokens", tokens
        yield "tokenizer.ggml.scores", [-float(n) for n in range(VOCABULARY)]
        yield "tokenizer.ggml.token_type", [2, 3, 3, *[6] * 256, *[1] * (VOCABULARY - 259)]
    else:
        tokens = [*BYTES, "ab", "abc", "Ġa", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        tokens += [f"w{n}" for n in range(VOCABULARY - len(tokens))]
        yield "tokenizer.ggml.pre", "qwen2"
        yield "tokenizer.ggml.tokens", tokens
        yield "tokenizer.ggml.merges", ["a b", "ab c", "Ġ a"]
        yield "tokenizer.ggml.token_type", [1] * 259 + [3] * 3 + [1] * (VOCABULARY - 262)
    yield "tokenizer.ggml.bos_token_id", 1
    yield "tokenizer.ggml.eos_token_id", 2
    yield "tokenizer.ggml.add_bos_token", True
    yield "tokenizer.chat_template", TEMPLATES[0]


def _tensors(architecture: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    half = WIDTH // 2
    yield "token_embd.weight", (VOCABULARY, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    if architecture == "gemma3n":
        yield from _streams()
    if architecture == "gpt2":
        yield "position_embd.weight", (64, WIDTH)
    norms = ["attn_norm"] if architecture in ONE_NORM else [] if architecture == "olmo2" else ["attn_norm", "ffn_norm"]
    if architecture in NORMS_AFTER:
        norms += ["post_attention_norm", "post_ffw_norm"]
    for norm in norms:
        yield f"blk.0.{norm}.weight", (WIDTH,)
    if architecture in ("qwen3", "gemma3", "gemma3n", "olmo2"):
        heads = (2, 1) if architecture == "olmo2" else (1, 1)
        yield "blk.0.attn_q_norm.weight", (heads[0] * half,)
        yield "blk.0.attn_k_norm.weight", (heads[1] * half,)
    if architecture in JOINED_QKV:
        yield "blk.0.attn_qkv.weight", (2 * WIDTH, WIDTH)
    else:
        yield "blk.0.attn_q.weight", (WIDTH, WIDTH)
        yield "blk.0.attn_k.weight", (half, WIDTH)
        yield "blk.0.attn_v.weight", (half, WIDTH)
    if architecture not in (*JOINED_GATE, *WITHOUT_GATE):
        yield "blk.0.ffn_gate.weight", (WIDTH, WIDTH)
    yield "blk.0.ffn_up.weight", (2 * WIDTH if architecture in JOINED_GATE else WIDTH, WIDTH)
    if architecture == "qwen2":
        yield "blk.0.attn_q.bias", (WIDTH,)
    yield "blk.0.attn_output.weight", (WIDTH, WIDTH)
    yield "blk.0.ffn_down.weight", (WIDTH, WIDTH)


def _streams() -> Iterator[tuple[str, tuple[int, ...]]]:
    """What Gemma 3n has besides Gemma 3's."""
    for name in ("altup_proj", "altup_unembd_proj"):
        yield f"{name}.weight", (3, WIDTH, WIDTH)
    yield "per_layer_token_embd.weight", (VOCABULARY, WIDTH)
    yield "per_layer_model_proj.weight", (WIDTH, WIDTH)
    yield "per_layer_proj_norm.weight", (WIDTH,)
    for name in ("altup_correct_scale", "altup_router_norm", "laurel_post_norm", "post_norm"):
        yield f"blk.0.{name}.weight", (WIDTH,)
    for name in ("laurel_l", "laurel_r", "inp_gate", "proj"):
        yield f"blk.0.{name}.weight", (WIDTH, WIDTH)
    yield "blk.0.altup_router.weight", (4, WIDTH)
    yield "blk.0.altup_correct_coef.weight", (4, 4)
    yield "blk.0.altup_predict_coef.weight", (16, 4)


def _folders() -> Iterator[tuple[str, bytes]]:
    """A folder as one file: config.json in a line, then model.safetensors."""
    sizes = {"num_hidden_layers": 1, "hidden_size": WIDTH, "intermediate_size": WIDTH, "vocab_size": VOCABULARY}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    own: dict[str, dict[str, Any]] = {
        "llama": {"model_type": "llama", "rope_scaling": _LLAMA3, "rope_theta": 10_000.0},
        "qwen2": {"model_type": "qwen2", "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}},
        "gemma3": {"model_type": "gemma3_text", "head_dim": WIDTH // 2, "query_pre_attn_scalar": WIDTH // 2},
        "phi3": {"model_type": "phi3", "rope_scaling": {"type": "su", "long_factor": [1] * 8, "short_factor": [1] * 8}},
        "gptq": {"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 16}},
        "awq": {"model_type": "llama", "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 16}},
    }
    for name, config in own.items():
        architecture = "llama" if name in PACKED else name
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            path.write_bytes(tiny_model(architecture).encoded())
            tensors = folder_tensors(read_gguf(path))
        if name in PACKED:
            del tensors["model.layers.0.mlp.down_proj.weight"]
            packed = {part: np.zeros(dims, np.int32) for part, dims in PACKED[name].items()}
            packed["scales"] = np.ones((2, WIDTH), np.float16)
            tensors |= {f"model.layers.0.mlp.down_proj.{part}": array for part, array in packed.items()}
        yield f"{name}.folder", json.dumps(sizes | config).encode() + b"\n" + safetensors_bytes(tensors)
    for name in ("deepseek_v3", "gpt_oss_mxfp4", "qwen3_fp8"):
        saved = SAVED_FOLDERS / name
        config = json.loads((saved / "config.json").read_text("utf-8"))
        yield f"{name}.folder", json.dumps(config).encode() + b"\n" + (saved / "model.safetensors").read_bytes()


# By tool: the integers of a matrix [WIDTH, WIDTH] in groups of 16.
PACKED: dict[str, dict[str, tuple[int, ...]]] = {
    "gptq": {"qweight": (WIDTH // 8, WIDTH), "qzeros": (2, WIDTH // 8), "g_idx": (WIDTH,)},
    "awq": {"qweight": (WIDTH, WIDTH // 8), "qzeros": (2, WIDTH // 8)},
}


_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3["original_max_position_embeddings"] = 32


# ---- encoders, models in two files, adapters


def _encoders() -> Iterator[tuple[str, bytes]]:
    for name in ENCODER_NAMES:
        yield f"{name}.gguf", (ENCODERS / f"{name}.gguf").read_bytes()


def _encoder_folders() -> Iterator[tuple[str, bytes]]:
    """As `_folders`."""
    for name in ENCODER_NAMES:
        with tempfile.TemporaryDirectory() as folder:
            made = encoder_folder(name, Path(folder) / name)
            config = json.dumps(json.loads((made / "config.json").read_text("utf-8"))).encode()
            yield f"{name}.folder", config + b"\n" + (made / "model.safetensors").read_bytes()


ENCODER_NAMES = ("bert", "bert_cls", "nomic", "modern_rank", "roberta_rank")


def _halves() -> Iterator[tuple[str, bytes]]:
    """The two files of a model, of which one is damaged."""
    for number in range(2):
        parts = tiny_model("llama")
        parts.infos = parts.infos[:4] if number == 0 else parts.infos[4:]
        parts.fields = parts.fields if number == 0 else parts.fields[:1]
        for key, value in (("split.no", number), ("split.count", 2), ("split.tensors.count", 11)):
            parts.fields.append(Field.of(key, value))
        yield f"model-{number + 1:05}-of-00002.gguf", parts.encoded()


CHANGED = {"blk.0.attn_q": (WIDTH, WIDTH), "blk.0.ffn_down": (WIDTH, WIDTH), "output": (VOCABULARY, WIDTH)}


def _adapters() -> Iterator[tuple[str, bytes]]:
    """Of the model in `model_file`: one to merge, and one to switch."""
    fields = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    matrices = {f"{name}.weight": sides for name, sides in _sides(CHANGED).items()}
    matrices["token_embd.weight"] = np.ones((VOCABULARY, 2), np.float32), np.ones((WIDTH, 2), np.float32)
    for file, some in (("merged", list(matrices)), ("switched", list(matrices)[:2])):
        parts = GgufParts([], [], b"")
        for key, value in {**fields, "adapter.lora.alpha": 4.0}.items():
            parts.fields.append(Field.of(key, value))
        for name in some:
            for side, matrix in zip("ab", matrices[name], strict=True):
                parts.infos.append(Info(f"{name}.lora_{side}".encode(), matrix.shape[::-1], 0, len(parts.data)))
                parts.data += matrix.tobytes() + bytes(-matrix.nbytes % 32)
        yield f"{file}.gguf", parts.encoded()


def _sides(dims: Mapping[str, tuple[int, int]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(A, B) of rank 2."""
    ones = np.ones
    return {name: (ones((2, k), np.float32), ones((n, 2), np.float32)) for name, (n, k) in dims.items()}


def _peft_folders() -> Iterator[tuple[str, bytes]]:
    """As `_folders`, of the same model."""
    layer = "base_model.model.model.layers.0"
    modules = {f"{layer}.self_attn.q_proj": (WIDTH, WIDTH), f"{layer}.mlp.down_proj": (WIDTH, WIDTH)}
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "alpha_pattern": {"q_proj": 3}}
    pairs = _sides(modules | {"base_model.model.lm_head": (VOCABULARY, WIDTH)})
    tensors = {
        f"{name}.lora_{side}.weight": m for name, both in pairs.items() for side, m in zip("AB", both, strict=True)
    }
    embedding = "base_model.model.model.embed_tokens.lora_embedding_"
    tensors |= {f"{embedding}A": np.ones((2, VOCABULARY), np.float32), f"{embedding}B": np.ones((WIDTH, 2), np.float32)}
    switched = {name: m for name, m in tensors.items() if layer in name}
    for name, some in (("merged", tensors), ("switched", switched)):
        yield (
            f"{name}.peft",
            json.dumps(config | {"use_rslora": name == "merged"}).encode() + b"\n" + safetensors_bytes(some),
        )


# ---- tokenizers

TEMPLATES = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "[INST] {{ message['content'] | trim }} [/INST]{% elif message.role == 'system' %}{{ message.content }}"
    "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}",
    "{%- set ns = namespace(found=false) -%}{%- for message in messages[::-1] -%}{%- set ns.found = true -%}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt and loop is undefined -%}<|im_start|>assistant\n{%- endif -%}",
    "{% macro say(m) %}{{ m.role | upper }}: {{ m.content | replace('a', 'b') }}{% endmacro %}"
    "{% if messages | length > 0 %}{{ say(messages[0]) }}{% else %}{{ raise_exception('no message') }}{% endif %}",
)


def _json_tokenizers() -> Iterator[tuple[str, bytes]]:
    vocabulary = {token: n for n, token in enumerate([*BYTES, "ab", "Ġa"])}
    gpt2 = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("a", "b"), ("Ġ", "a")]))
    gpt2.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.decoder = tokenizers.decoders.ByteLevel()
    gpt2.add_special_tokens(["<|endoftext|>"])
    yield "byte_level.json", gpt2.to_str().encode()
    pieces = {token: n for n, token in enumerate(["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab", "<0x0A>"])}
    llama = tokenizers.Tokenizer(
        tokenizers.models.BPE(pieces, [("▁", "a"), ("a", "b")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    llama.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    llama.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    )
    llama.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    yield "sentencepiece.json", llama.to_str().encode()


def _sentencepiece() -> Iterator[tuple[str, bytes]]:
    """A protobuf of pieces: (text, score, type)."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *((f"<0x{n:02X}>", 0.0, 6) for n in range(16))]
    pieces += [("▁", -1.0, 1), ("a", -2.0, 1), ("b", -3.0, 1), ("ab", -4.0, 1), ("▁ab", -5.0, 4)]
    data = b""
    for text, score, kind in pieces:
        inner = b"\x0a" + bytes([len(text.encode())]) + text.encode() + b"\x15" + struct.pack("<f", score)
        inner += b"\x18" + bytes([kind])
        data += b"\x0a" + bytes([len(inner)]) + inner
    trainer = b"\x18\x02\x20\x08\xe0\x02\x01"
    yield "tokenizer.model", data + b"\x12" + bytes([len(trainer)]) + trainer


def _tiktoken() -> Iterator[tuple[str, bytes]]:
    tokens = [bytes([n]) for n in range(256)] + [b"ab", b" a", b"abc"]
    lines = [base64.b64encode(token) + b" %d\n" % n for n, token in enumerate(tokens)]
    yield "tokenizer.model", b"".join(lines)


def _llama2c() -> Iterator[tuple[str, bytes]]:
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % n for n in range(256)), b" ", b"a", b"b", b"ab"]
    records = (struct.pack("<fi", -float(n), len(token)) + token for n, token in enumerate(tokens))
    yield "tokenizer.bin", struct.pack("<i", 7) + b"".join(records)


def _templates() -> Iterator[tuple[str, bytes]]:
    for n, text in enumerate(TEMPLATES):
        yield f"template{n}.jinja", text.encode()


# ---- what hightide writes itself


@cache
def model_file() -> Path:
    """A model that saved states belong to."""
    path = Path(tempfile.mkdtemp(prefix="hightide-fuzz-")) / "model.gguf"
    path.write_bytes(seeds("gguf")["llama.gguf"])
    return path


def _states() -> Iterator[tuple[str, bytes]]:
    path = model_file().with_name("seed.npz")
    with LLM(model_file(), device="cpu", context=16) as llm:
        llm.generate([1, 5, 6], max_tokens=2)
        llm.save_state(path)
    yield "state.npz", path.read_bytes()
    with np.load(path) as saved:
        packed = io.BytesIO()
        np.savez_compressed(packed, **saved)
    yield "compressed.npz", packed.getvalue()


CACHES = ("limits.json", "tuned.json", "selftest.json", "model.json", "conversation.json")
ADAPTER = "adapter"  # the key of what was measured, which the targets look up


VERDICT = {
    "choice": "linear.gemv",
    "chosen": "split",
    "default": "split",
    "ratios": {"split": 1.0},
    "workloads": {"a": {"split": 0.5}},
}


def _caches() -> Iterator[tuple[str, bytes]]:
    names = ("read_gb_s", "copy_gb_s", "fma_gflop_s", "dispatch_us", "submit_us", "readback_us")
    contents: dict[str, Any] = {
        "limits.json": {ADAPTER: dict.fromkeys(names, 12.5)},
        "tuned.json": {ADAPTER: {"chosen": {"linear.gemv": "split"}, "verdicts": [VERDICT]}},
        "selftest.json": {ADAPTER: {"version": "1", "failures": []}},
        "model.json": {"model": str(cache_folder() / "model.gguf"), "tokenizer": None},
        "conversation.json": {"model": "model.gguf", "messages": [{"role": "user", "content": "Hi"}]},
    }
    for name in CACHES:
        yield name, json.dumps(contents[name]).encode()


_MAKERS: dict[str, Callable[[], Iterator[tuple[str, bytes]]]] = {
    "pte": _programs,
    "gpu": _programs,
    "graph": op_graphs,
    "ptd": _data_files,
    "gguf": _models,
    "folder": _folders,
    "encoder": _encoders,
    "encoder_folder": _encoder_folders,
    "split": _halves,
    "adapter": _adapters,
    "peft": _peft_folders,
    "json": _json_tokenizers,
    "sentencepiece": _sentencepiece,
    "tiktoken": _tiktoken,
    "llama2c": _llama2c,
    "template": _templates,
    "state": _states,
    "cache": _caches,
}
KINDS = tuple(_MAKERS)
