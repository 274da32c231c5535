"""What the architectures share: weights of a GGUF file as graph values, and the pieces of a decoder.

Every model has the inputs tokens [1, S], input_pos [1] and keep [1], and gives the logits of the last
`keep` tokens [1, keep, vocabulary]: none for a chunk of a longer prompt, one to go on, several to check
a draft. `settings` says how the ids [1, keep] are chosen from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError, ProgramError, UnsupportedError
from hightide.formats.checks import nearest
from hightide.formats.gguf import GgufFile, GgufTensor
from hightide.formats.lora import LoraAdapter
from hightide.formats.model_tensors import read_rows
from hightide.graph.blob import Blob
from hightide.graph.graph import Graph
from hightide.graph.values import SymIntValue, TensorValue
from hightide.ops.blocks.dispatch import BLOCK
from hightide.ops.blocks.layout import BLOCK_TYPES, dequantize
from hightide.ops.builder import GraphBuilder
from hightide.ops.sampling.sampling import SETTINGS

PART_BYTES = 128 << 20  # WebGPU's guaranteed binding size: larger weights are split by rows
MAX_DEPTH = 1024  # elements of a head; the largest known is 256
MAX_KEEP = 16  # tokens of one call whose logits can be had; each takes the vocabulary in memory
INPUTS = ("tokens", "input_pos", "keep", "settings")
DYNAMIC = (True, False, False, False)
# Tensors that no logit depends on: factors for other contexts, heads that rank, and what sees and hears in some files.
ELSEWHERE = ("rope_", "cls.", "v.", "a.", "mm.")
UNREAD = ("attention.clamp_kqv", "attention.max_alibi_bias")  # they change results, and no architecture has them
DEFAULT_CONTEXT = 2048  # unless the model's own is shorter, or the caller asks for more


@dataclass(frozen=True)
class Rope:
    """Tables [context, ...] of cosines and sines; `halves`: element d turns with d + rotary/2, not d + 1."""

    cos: TensorValue
    sin: TensorValue
    halves: bool


def choose_context(file: GgufFile, asked: int | None, least: int = 1) -> int:
    """The context to build a model for, within the one it was trained for."""
    trained = file.get("context_length", DEFAULT_CONTEXT)
    if isinstance(trained, bool) or not isinstance(trained, int) or trained < 1:
        raise ProgramError(f"{file.path}: {file.architecture}.context_length is {trained!r}, not a positive integer")
    context = min(trained, DEFAULT_CONTEXT) if asked is None else asked
    if not least <= context <= trained:
        raise InputError(f"{file.path.name} has a context of {trained} tokens; it cannot use {context}")
    return context


class ModelBuilder:
    """Builds one model's graph; an architecture's `build` calls it from top to bottom."""

    def __init__(
        self,
        file: GgufFile,
        context: int,
        max_tokens: int,
        part_bytes: int = PART_BYTES,
        headless: bool = False,
        adapters: Sequence[LoraAdapter] = (),
    ) -> None:
        """`headless`: the graph gives the vectors that logits would be made of.

        With `adapters` there are two more inputs: rows that have some [S], and how much of each [S, adapters].
        """
        self.adapters = adapters
        self.file, self.context, self.part_bytes, self.headless = file, context, part_bytes, headless
        b = self.graph_builder = GraphBuilder()
        self._weights: dict[str, Any] = {}
        self._used: set[str] = set()
        self._changed: set[str] = set()  # weights that adapters change
        self._in_layers = {name.partition(".")[2].partition(".")[2] for name in file.tensors if name.startswith("blk.")}
        self.max_tokens = max_tokens
        self.tokens = b.input((1, max_tokens), "int32")
        self.length: SymIntValue
        self.take_inputs(b)

    def take_inputs(self, b: GraphBuilder) -> None:
        """The inputs beside the tokens."""
        input_pos, keep = b.input((1,), "int32"), b.input((1,), "int32")
        self.settings = b.input((SETTINGS,))
        if self.adapters:
            self.adapted = b.input((self.max_tokens,), "int32")
            self.strengths = b.input((self.max_tokens, len(self.adapters)))
        self.length = b.call("sym_size.int", self.tokens, 1)
        self.position: SymIntValue = b.call("et_vk.select_as_symint.default", input_pos, 0, 0)
        self.end: SymIntValue = b.call("add", self.position, self.length)
        self.kept_from: SymIntValue = b.call("sub", self.length, b.call("et_vk.select_as_symint.default", keep, 0, 0))

    # ---- the file

    def number(self, key: str, default: float | None = None, least: float = 0, layer: int | None = None) -> float:
        """A field of the architecture; an error if it is needed and missing, or makes no sense.

        Fields that files give by layer are read with the layer's number.
        """
        value = self.file.get(key, default)
        where = f"{self.file.path}: {self.file.architecture}.{key}"
        if value is None:
            raise ProgramError(f"{where} is missing{nearest(key, self._keys())}")
        if isinstance(value, list) and layer is not None:
            if layer >= len(value):
                raise ProgramError(f"{where} has {len(value)} items, none for layer {layer}")
            value, where = value[layer], f"{where}[{layer}]"
        if isinstance(value, list):
            raise UnsupportedError(f"{where} differs from layer to layer")
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
            raise ProgramError(f"{where} is {value!r}, not a number of at least {least:g}")
        return float(value)

    def count(self, key: str, default: int | None = None, layer: int | None = None) -> int:
        """A field that is a whole number above 0."""
        value = self.number(key, default, layer=layer)
        if value < 1 or value != int(value):
            raise ProgramError(f"{self.file.path}: {self.file.architecture}.{key} is {value:g}, not a positive integer")
        return int(value)

    def attention_dims(self, layer: int = 0) -> tuple[int, int, int]:
        """(heads, heads of keys and values, elements of a head)"""
        heads = self.count("attention.head_count", layer=layer)
        kv_heads = self.count("attention.head_count_kv", heads, layer=layer)
        shared = self.count("embedding_length") // self.count("attention.head_count", layer=0)
        depth = self.count("attention.key_length", max(1, shared))
        if heads % kv_heads or depth > MAX_DEPTH or depth % 2:
            found = f"{heads} query heads and {kv_heads} kv heads of {depth} elements"
            raise ProgramError(f"{self.file.path} has {found}, which do not fit together")
        if self.count("attention.value_length", depth) != depth:
            raise UnsupportedError(f"{self.file.path} has values of a different length than its keys")
        return heads, kv_heads, depth

    def layers(self) -> int:
        """How many there are; each has a tensor at least."""
        layers, tensors = self.count("block_count"), len(self.file.tensors)
        if layers > tensors:
            raise ProgramError(f"{self.file.path} has {tensors} tensors, too few for {layers} layers")
        return layers

    def windows(self, pattern: int, window: int = 0) -> list[int]:
        """How many tokens each layer sees, 0 for all: every `pattern`-th layer sees all, unless the file says which."""
        layers, window = self.layers(), int(self.number("attention.sliding_window", window))
        given = self.file.get("attention.sliding_window_pattern")
        if not isinstance(given, list):
            pattern = self.count("attention.sliding_window_pattern", pattern)
            return [0 if (n + 1) % pattern == 0 else window for n in range(layers)]
        if len(given) < layers:
            where = f"{self.file.path}: {self.file.architecture}.attention.sliding_window_pattern"
            raise ProgramError(f"{where} has {len(given)} items for {layers} layers")
        return [window if is_local else 0 for is_local in given[:layers]]

    def flag(self, key: str, default: bool) -> bool:
        """A field that is true or false."""
        value = self.file.get(key, default)
        if not isinstance(value, bool):
            where = f"{self.file.path}: {self.file.architecture}.{key}"
            raise ProgramError(f"{where} is {value!r}, neither true nor false")
        return value

    def _keys(self) -> list[str]:
        """The fields of the architecture that the file has."""
        prefix = f"{self.file.architecture}."
        return [key.removeprefix(prefix) for key in self.file.metadata if key.startswith(prefix)]

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    def has_in_layers(self, name: str) -> bool:
        """Whether any layer has the tensor; one that has not is then an error."""
        return name in self._in_layers

    def array(self, name: str) -> np.ndarray:
        """A small tensor in float32, on the host."""
        tensor = self.tensor(name)
        return dequantize(tensor.data, tensor.type, tensor.dims)

    def weight(self, name: str) -> TensorValue | list[TensorValue]:
        """A matrix as it lies in the file: in blocks or in float32, in parts where it is too large to bind."""
        if name not in self._weights:
            tensor = self.tensor(name)
            if len(tensor.dims) != 2:
                raise ProgramError(f"{self.file.path}: tensor {name} has dims {list(tensor.dims)}, not two")
            if tensor.dims[-1] % BLOCK:
                self._weights[name] = self.graph_builder.constant(self.array(name))
            else:
                parts = [self.graph_builder.stored(dims, tensor.type, data) for dims, data in self._parts(tensor)]
                self._weights[name] = parts[0] if len(parts) == 1 else parts
        return self._weights[name]

    def rows(self, name: str) -> int:
        """Of a matrix."""
        return self.tensor(name).dims[0]

    def matrices(self, name: str, count: int) -> list[TensorValue]:
        """The matrices that a tensor of three dims holds, each as it lies in the file."""
        tensor = self.tensor(name)
        if len(tensor.dims) != 3 or tensor.dims[0] != count or tensor.dims[-1] % BLOCK:
            raise ProgramError(f"{self.file.path}: tensor {name} has dims {list(tensor.dims)}, not {count} matrices")
        dims = tensor.dims[1:]
        size = tensor.data.length // count
        parts = (Blob(tensor.data.source, tensor.data.offset + n * size, size) for n in range(count))
        return [self.graph_builder.stored(dims, tensor.type, part) for part in parts]

    def leave_out(self, prefix: str) -> None:
        """Tensors that the model does not need."""
        self._used.update(name for name in self.file.tensors if name.startswith(prefix))

    def tensor(self, name: str) -> GgufTensor:
        self._used.add(name)
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise ProgramError(f"{self.file.path} has no tensor {name}{nearest(name, self.file.tensors)}")
        if tensor.type not in BLOCK_TYPES:
            known, close = ", ".join(BLOCK_TYPES), nearest(tensor.type, BLOCK_TYPES)
            raise UnsupportedError(f"{self.file.path}: tensor {name} is {tensor.type}; {known} are supported{close}")
        if 0 in tensor.dims or not tensor.dims:
            raise ProgramError(f"{self.file.path}: tensor {name} has dims {list(tensor.dims)}")
        return tensor

    def _parts(self, tensor: GgufTensor) -> list[tuple[tuple[int, int], Blob]]:
        rows, width = tensor.dims
        row_bytes = tensor.data.length // rows
        step = max(1, self.part_bytes // row_bytes)
        if step < rows:
            step = max(16, step // 16 * 16)
        return [
            (
                (min(step, rows - first), width),
                Blob(tensor.data.source, tensor.data.offset + first * row_bytes, min(step, rows - first) * row_bytes),
            )
            for first in range(0, rows, step)
        ]

    # ---- pieces of a decoder; x is [1, S, width]

    def embed(self, name: str = "token_embd.weight") -> TensorValue:
        return self.graph_builder.call("aten.embedding.default", self.weight(name), self.tokens)

    def linear(self, x: TensorValue, name: str) -> TensorValue:
        """x @ weight.T, plus the bias if the file has one."""
        weight, bias = self.weight(f"{name}.weight"), f"{name}.bias"
        given = None
        if self.has(bias):
            array, rows = self.array(bias), self.rows(f"{name}.weight")
            if array.shape != (rows,):
                raise ProgramError(f"{self.file.path}: {bias} has dims {list(array.shape)}, not [{rows}]")
            given = self.graph_builder.constant(array)
        changes = self._changes(f"{name}.weight")
        kind = "hightide.adapted_linear.default" if changes else "aten.linear.default"
        y: TensorValue = self.graph_builder.call(kind, x, weight, given, **changes)
        return y

    def _changes(self, name: str) -> dict[str, Any]:
        """What adapters change in a weight, in the rows that have them: arguments of its linear."""
        found = [(n, adapter.changes[name]) for n, adapter in enumerate(self.adapters) if name in adapter.changes]
        if not found or name in ("output.weight", "token_embd.weight"):  # their rows are only those of wanted logits
            return {}
        self._changed.add(name)
        downs = [read_rows(change.down, 0, change.down.dims[0]) for _, change in found]
        ups = [read_rows(change.up, 0, change.up.dims[0]) * np.float32(change.scale) for _, change in found]
        owners = np.repeat([n for n, _ in found], [len(down) for down in downs]).astype(np.int32)
        matrices = {"downs": np.concatenate(downs), "ups": np.concatenate(ups, axis=1), "owners": owners}
        constants = {name: [self.graph_builder.constant(matrix)] for name, matrix in matrices.items()}
        return {**constants, "firsts": [0], "adapted": self.adapted, "strengths": self.strengths}

    def norm(self, x: TensorValue, name: str) -> TensorValue:
        weight = self.graph_builder.constant(self.array(f"{name}.weight"))
        eps = self.number("attention.layer_norm_rms_epsilon")
        return self.graph_builder.call("et_vk.rms_norm.default", x, weight, eps)

    def layer_norm(self, x: TensorValue, name: str) -> TensorValue:
        """With a mean and, if the file has one, a bias; a weight of two dims has a row for each head."""
        b, eps = self.graph_builder, self.number("attention.layer_norm_epsilon")
        weight, bias = self.array(f"{name}.weight"), f"{name}.bias"
        shape = [x.dims[-1]]
        if weight.ndim == 2:
            if weight.shape != x.dims[-2:]:
                raise ProgramError(
                    f"{self.file.path}: {name}.weight has dims {list(weight.shape)}, not {list(x.dims[-2:])}"
                )
            normed, _, _ = b.call("aten.native_layer_norm.default", x, shape, None, None, eps)
            return self.multiply(normed, b.constant(weight))
        given = b.constant(self.array(bias)) if self.has(bias) else None
        normed, _, _ = b.call("aten.native_layer_norm.default", x, shape, b.constant(weight), given, eps)
        return normed

    def heads(self, x: TensorValue, count: int, depth: int) -> TensorValue:
        """[1, S, count * depth] -> [1, S, count, depth]"""
        return self.graph_builder.call("aten.view_copy.default", x, [1, self.length, count, depth])

    def joined(self, x: TensorValue) -> TensorValue:
        """[1, S, count, depth] -> [1, S, count * depth]"""
        return self.graph_builder.call("aten.view_copy.default", x, [1, self.length, x.dims[2] * x.dims[3]])

    def split(self, x: TensorValue, *sizes: int) -> tuple[TensorValue, ...]:
        outs: tuple[TensorValue, ...] = self.graph_builder.call(
            "aten.split_with_sizes_copy.default", x, list(sizes), -1
        )
        return outs

    def add(self, x: TensorValue, y: TensorValue) -> TensorValue:
        return self.graph_builder.call("aten.add.Tensor", x, y, 1)

    def scale(self, x: TensorValue, by: float) -> TensorValue:
        return self.graph_builder.call("aten.mul.Scalar", x, by)

    def multiply(self, x: TensorValue, y: TensorValue) -> TensorValue:
        return self.graph_builder.call("aten.mul.Tensor", x, y)

    def activate(self, x: TensorValue, activation: str) -> TensorValue:
        """gelu is the exact one; gelu_tanh what most models compute."""
        if activation not in ("gelu", "gelu_tanh"):
            return self.graph_builder.call(f"aten.{activation}.default", x)
        return self.graph_builder.call("aten.gelu.default", x, "tanh" if activation == "gelu_tanh" else "none")

    def at_positions(self, table: np.ndarray) -> TensorValue:
        """The rows of a table [context, ...] at the positions of the tokens: [S, ...]"""
        b, live = self.graph_builder, [(self.max_tokens, *table.shape[1:])]
        return b.call("aten.slice_copy.Tensor", b.constant(table), 0, self.position, self.end, 1, dims=live)

    def gated(self, gate: TensorValue, up: TensorValue, activation: str = "silu") -> TensorValue:
        """activation(gate) * up, for silu and gelu_tanh"""
        return self.graph_builder.call(f"hightide.{activation.removesuffix('_tanh')}_mul.default", gate, up)

    def softcap(self, x: TensorValue, cap: float) -> TensorValue:
        """cap * tanh(x / cap)"""
        return self.scale(self.graph_builder.call("aten.tanh.default", self.scale(x, 1 / cap)), cap)

    def rope(
        self,
        *,
        halves: bool,
        theta: float,
        rotary: int,
        depth: int | None = None,
        factors: np.ndarray | None = None,
        scale: float = 1.0,
        magnitude: float = 1.0,
    ) -> Rope:
        """Angle tables: position * scale / (theta^(2i/rotary) * factor_i), for `rotary` of `depth` elements."""
        if rotary % 2 or (factors is not None and factors.shape != (rotary // 2,)):
            raise ProgramError(f"{self.file.path} has rotary factors that do not fit {rotary} elements")
        frequencies = 1.0 / theta ** (np.arange(0, rotary, 2, dtype=np.float64) / rotary)
        if factors is not None:
            frequencies = frequencies / factors
        angles = np.outer(np.arange(self.context) * scale, frequencies)
        if halves:  # the tables cover both halves
            angles = np.concatenate([angles, angles], axis=1)
        b = self.graph_builder
        cos, sin = ((f(angles) * magnitude).astype(np.float32) for f in (np.cos, np.sin))
        if halves:  # read from the position on by the kernel
            return Rope(b.constant(cos), b.constant(sin), True)
        still = ((0, 0), (0, (depth or rotary) // 2 - rotary // 2))  # pairs of a head that do not turn
        cos, sin = np.pad(cos, still, constant_values=1), np.pad(sin, still)
        return Rope(self.at_positions(cos), self.at_positions(sin), False)

    def rotate(self, q: TensorValue, k: TensorValue, rope: Rope) -> tuple[TensorValue, TensorValue]:
        b = self.graph_builder
        if rope.halves:
            q, k = b.call("et_vk.apply_rotary_emb_hf.default", q, k, rope.cos, rope.sin, self.position)
        else:
            q, k = b.call("et_vk.apply_rotary_emb.default", q, k, rope.cos, rope.sin)
        return q, k

    def attend(
        self,
        q: TensorValue,
        k: TensorValue,
        v: TensorValue,
        *,
        scale: float | None = None,
        window: int = 0,
        softcap: float = 0.0,
        sinks: TensorValue | None = None,
    ) -> TensorValue:
        """Causal attention over this layer's own KV cache -> [1, S, heads * depth of v]"""
        b = self.graph_builder
        k_cache, v_cache = (b.zeros((1, self.context, *x.dims[2:])) for x in (k, v))
        scale = 1 / math.sqrt(k.dims[3]) if scale is None else scale
        window = 0 if window >= self.context else window
        args = (q, k, v, k_cache, v_cache, self.position, scale, window, softcap, sinks)
        return self.joined(b.call("hightide.attention.default", *args))

    def sinks(self, layer: str) -> TensorValue | None:
        """One more score for each head of a layer, if the file has them."""
        name = f"{layer}.attn_sinks.weight"
        return self.graph_builder.constant(self.array(name)) if self.has(name) else None

    def last(self, x: TensorValue) -> TensorValue:
        """The tokens whose logits are wanted: [1, keep, width]"""
        most = [(1, min(MAX_KEEP, self.max_tokens), x.dims[-1])]
        return self.graph_builder.call("aten.slice_copy.Tensor", x, 1, self.kept_from, None, 1, dims=most)

    def head(self, x: TensorValue, softcap: float = 0.0, scale: float = 1.0) -> TensorValue:
        """Logits; a model without an output matrix uses its embedding."""
        if self.headless:
            return x
        logits = self.linear(x, "output" if self.has("output.weight") else "token_embd")
        logits = self.scale(logits, scale) if scale != 1 else logits
        return self.softcap(logits, softcap) if softcap else logits

    def finish(self, logits: TensorValue) -> Graph:
        """The graph, with outputs (logits, ids)."""
        self.check_all_read()
        b = self.graph_builder
        ids = b.call("hightide.sample.default", logits, self.settings, dtype="int32")
        return b.graph(logits, ids)

    def check_all_read(self) -> None:
        """UnsupportedError for what the file has and the model did not read: it would change the results."""
        for name in self.file.tensors:
            elsewhere = name.startswith(ELSEWHERE) or (self.headless and not name.startswith("blk."))
            if name not in self._used and not elsewhere:
                kind = self.file.architecture
                raise UnsupportedError(f"{self.file.path} has tensor {name}, which a {kind} model here does not use")
        for key in UNREAD:
            if self.file.get(key):
                where = f"{self.file.path}: {self.file.architecture}.{key}"
                raise UnsupportedError(f"{where} is {self.file.get(key)!r}, which is not supported")
        for adapter in self.adapters:
            if other := adapter.changes.keys() - self._changed:
                raise UnsupportedError(f"{adapter.path} changes {min(other)}, which answers cannot switch; merge it")
