"""Random small graphs around the patterns that passes look for, with live dims, and their calls.

A graph is a chain of steps over a pool of tensors: linears of every kind, gates, norms, attention, views and clones,
sums, selects, state that is written in between. Each step may be disturbed: somebody else reads a value, it becomes an
output, it is viewed and viewed back, a cache changes. The same seed makes the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hightide.errors import InputError
from hightide.graph.blob import Blob
from hightide.graph.graph import Graph
from hightide.graph.values import SymIntValue, TensorValue
from hightide.ops.builder import GraphBuilder
from hightide.runtime.cpu_session import CpuSession

MOST = {"S": 5, "T": 5, "B": 3}  # the max of each live dim; two are alike, so that the max does not tell them apart
CONTEXT = 8
LEVELS: list[dict[str, int]] = [
    {"pos": 0},
    {"S": 1, "T": 1, "B": 1, "pos": 5},
    {"S": 3, "T": 2, "B": 1, "pos": 2},
    {"S": 1, "T": 4, "B": 2, "pos": 6},
    {"S": 2, "T": 1, "B": 3, "pos": 0},
    {"S": 0, "T": 2, "B": 1, "pos": 1},
    {"S": 4, "T": 3, "B": 2, "pos": 3},
]


@dataclass(frozen=True)
class Size:
    """A dim: a number times live dims."""

    number: int = 1
    letters: str = ""

    def __mul__(self, other: Size) -> Size:
        return Size(self.number * other.number, "".join(sorted(self.letters + other.letters)))

    @property
    def factors(self) -> list[Size]:
        return [Size(self.number)] * (self.number != 1) + [Size(1, letter) for letter in self.letters]


ONE = Size()


@dataclass(frozen=True)
class Node:
    """A tensor of a graph and what its dims are at any level."""

    value: TensorValue
    dims: tuple[Size, ...]


def product(sizes: list[Size]) -> Size:
    total = ONE
    for size in sizes:
        total = total * size
    return total


class RandomGraph:
    """`graph` is the graph, `calls()` the inputs of calls of it, one after the other."""

    def __init__(self, seed: int, steps: int = 6) -> None:
        self.rng = np.random.default_rng(seed)
        self.unrest = 0.3  # how often a value is disturbed
        self.b = GraphBuilder()
        self.width = int(self.rng.choice([16, 16, 32, 12, 7]))
        self.letters: dict[str, tuple[TensorValue, int]] = {}
        self.outputs: list[Node] = []
        self.pool: list[Node] = []
        self.specs: list[tuple[Size, ...]] = []
        self.symints: dict[str, SymIntValue] = {}
        self.position_input = self.b.input((1,), "int32")
        self.position = self.b.call("et_vk.select_as_symint.default", self.position_input, 0, -1)
        self.caches = [self._cache() for _ in range(2)]
        shapes = [(ONE, Size(1, "S")), (Size(1, "S"),), (Size(1, "B"), Size(1, "S")), (Size(1, "S"), Size(1, "T"))]
        for n in range(int(self.rng.integers(1, 3))):
            self._input((*shapes[0 if n == 0 and self.chance(0.7) else self.rng.integers(len(shapes))], self.wide))
        if self.chance(0.7):  # rows of a known length, as those of an embedding are
            self.pool += [self.norm(node) for node in self.pool]
        moves: list[tuple[float, Callable[[], Node]]] = [
            (3, self._residual),
            (2, self._gated),
            (4, self._attention),
            (2, self._add_norm),
            (4, self._linear_of_view),
            (2, self._selected),
            (2, lambda: self.view(self.pick())),
            (1, lambda: self.unary(self.pick())),
            (1, self._sum),
            (1, lambda: self.norm(self.pick())),
            (1, self._read_cache),
            (1, self._twice),
            (1, self._across_a_write),
            (0.4, self._broadcast),
            (1, self._permuted),
            (3, self._plain_attention),
            (2, self._attention_of_rows),
            (2, self._shared_weight),
        ]
        weights = np.array([weight for weight, _ in moves])
        for _ in range(steps):
            self.unrest = self.choose(0.02, 0.1, 0.3)
            made = moves[self.rng.choice(len(moves), p=weights / weights.sum())][1]()
            self.pool.append(self.disturbed(made))
        kept = [node for node in self.pool[-3:] if self.b.inputs.count(node.value.id) == 0]
        outputs = {node.value.id: node for node in (*self.outputs, *kept, self.unary(self.pool[-1]))}
        self.graph: Graph = self.b.graph(*(node.value for node in outputs.values()))

    # ---- calls

    def calls(self) -> list[list[np.ndarray]]:
        calls = []
        for n, level in enumerate(LEVELS):
            rng = np.random.default_rng(n)
            sizes = {**MOST, **level}
            tokens = sizes["S"]
            given = [np.array([min(sizes["pos"], CONTEXT - tokens)], np.int32)]
            for dims in self.specs:
                live = tuple(d.number * int(np.prod([sizes[x] for x in d.letters])) for d in dims)
                given.append(rng.uniform(-2, 2, live).astype(np.float32))
            calls.append(given)
        return calls

    # ---- choosing

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choose(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    @property
    def wide(self) -> Size:
        return Size(self.width)

    def pick(self, wide: bool = False) -> Node:
        """A tensor that there is; `wide`: with the graph's width for its last dim."""
        fit = [node for node in self.pool if not wide or (node.dims and node.dims[-1] == self.wide)]
        return fit[-1 if self.chance(0.6) else self.rng.integers(len(fit))] if fit else self.pool[0]

    def like(self, node: Node) -> Node | None:
        """Another tensor of the same dims."""
        fit = [other for other in self.pool if other.dims == node.dims and other is not node]
        return self.choose(*fit) if fit else None

    # ---- parts

    def _input(self, dims: tuple[Size, ...]) -> None:
        value = self.b.input([_most(d) for d in dims])
        self.specs.append(dims)
        for axis, dim in enumerate(dims):
            if len(dim.letters) == 1 and dim.number == 1:
                self.letters.setdefault(dim.letters, (value, axis))
        self.pool.append(Node(value, dims))

    def _cache(self) -> TensorValue:
        return self.b.zeros((1, CONTEXT, 2, 4))

    def constant(self, *dims: int, scale: float = 1.0) -> TensorValue:
        return self.b.constant((self.rng.normal(size=dims) * scale).astype(np.float32))

    def eighths(self, *dims: int) -> TensorValue:
        """A constant whose sums are exact, in whatever type."""
        return self.b.constant(self.rng.integers(-16, 17, dims).astype(np.float32) / 8)

    def symint(self, size: Size) -> Any:
        """A dim as an argument: a literal, or the SymInt of a live dim."""
        total: Any = size.number
        for letter in size.letters:
            if letter not in self.symints or self.chance(0.2):
                self.symints[letter] = self.b.call("sym_size.int", *self.letters[letter])
            live = self.symints[letter]
            total = live if isinstance(total, int) and total == 1 else self.b.call("mul", total, live)
        return total

    def viewed(self, node: Node, dims: tuple[Size, ...]) -> Node:
        sizes = [self.symint(dim) for dim in dims]
        if sizes and self.chance(0.25):
            sizes[self.rng.integers(len(sizes))] = -1
        return Node(self.b.call("aten.view_copy.default", node.value, sizes), dims)

    def view(self, node: Node) -> Node:
        """Other dims over the same elements."""
        kind = self.choose("clone", "unsqueeze", "squeeze", "same", "rows", "any", "any", "split")
        ones = [n for n, d in enumerate(node.dims) if d == ONE]
        if kind == "clone":
            name = self.choose("aten.clone.default", "aten.alias_copy.default")
            return Node(self.b.call(name, node.value), node.dims)
        if kind == "unsqueeze" and len(node.dims) < 5:
            at = int(self.rng.integers(len(node.dims) + 1))
            value = self.b.call("aten.unsqueeze_copy.default", node.value, at)
            return Node(value, (*node.dims[:at], ONE, *node.dims[at:]))
        if kind == "squeeze" and ones:
            at = self.choose(*ones)
            value = self.b.call("aten.squeeze_copy.dims", node.value, [at])
            return Node(value, (*node.dims[:at], *node.dims[at + 1 :]))
        if kind == "rows" and node.dims:
            return self.viewed(node, (product(list(node.dims[:-1])), node.dims[-1]))
        if kind == "split" and node.dims and node.dims[-1].number % 2 == 0:
            half = Size(node.dims[-1].number // 2, node.dims[-1].letters)
            return self.viewed(node, (*node.dims[:-1], Size(2), half))
        if kind == "any" and node.dims:
            factors = [f for d in node.dims[:-1] for f in d.factors]
            self.rng.shuffle(factors)  # type: ignore[arg-type]
            groups: list[Size] = []
            for factor in factors:
                if groups and self.chance(0.3):
                    groups[-1] = groups[-1] * factor
                else:
                    groups.append(factor)
            if self.chance(0.4):
                groups.insert(int(self.rng.integers(len(groups) + 1)), ONE)
            return self.viewed(node, (*groups, node.dims[-1]))
        return self.viewed(node, node.dims)

    def there_and_back(self, node: Node) -> Node:
        other = node
        for _ in range(int(self.rng.integers(1, 3))):
            other = self.view(other)
        return self.viewed(other, node.dims) if other.dims != node.dims else other

    def disturbed(self, node: Node) -> Node:
        """The same values, perhaps by another way, perhaps with other uses."""
        if not self.chance(self.unrest):
            return node
        match self.choose("output", "read", "view", "view", "clone", "write", "size"):
            case "output":
                self.outputs.append(node)
            case "read":
                self.outputs.append(self.unary(node))
            case "view":
                return self.there_and_back(node)
            case "clone":
                return Node(self.b.call("aten.clone.default", node.value), node.dims)
            case "write":
                self.write_cache(self.choose(*self.caches))
            case "size":
                live = [n for n, d in enumerate(node.dims) if d.number == 1 and len(d.letters) == 1]
                if live:
                    axis = self.choose(*live)
                    self.letters[node.dims[axis].letters] = node.value, axis
                    self.symints.pop(node.dims[axis].letters, None)
        return node

    def write_cache(self, cache: TensorValue) -> None:
        rows = self.b.constant(self.rng.normal(size=(1, 1, *cache.dims[2:])).astype(np.float32))
        self.b.call("llama.update_cache.default", rows, cache, self.position)

    def unary(self, node: Node) -> Node:
        name = self.choose("neg", "tanh", "silu", "sigmoid", "gelu", "mul")
        if name == "mul":
            return Node(self.b.call("aten.mul.Scalar", node.value, 0.5), node.dims)
        return Node(self.b.call(f"aten.{name}.default", node.value), node.dims)

    def linear(self, node: Node, columns: int, bias: bool | None = None, kind: str = "") -> Node:
        k, kind = node.dims[-1].number, kind or self.linear_kind()
        with_bias = self.constant(columns) if (self.chance(0.3) if bias is None else bias) else None
        if kind == "q4":
            codes = self.b.constant(self.rng.integers(0, 256, (columns, -(-k // 2)), dtype=np.uint8))
            scales = self.constant(-(-k // 8), columns, scale=0.1)
            value = self.b.call("et_vk.linear_q4gsw.default", node.value, codes, scales, 8, with_bias)
        else:
            weight = self.blocks(columns, k) if kind == "blocks" and k % 32 == 0 else self.weight(columns, k)
            value = self.b.call("aten.linear.default", node.value, weight, with_bias)
        made = Node(value, (*node.dims[:-1], Size(columns)))
        return self.viewed(made, made.dims) if self.chance(0.2) else made  # as exporters do

    def linear_kind(self) -> str:
        return str(self.choose("float", "float", "q4", "blocks"))

    def weight(self, rows: int, columns: int) -> TensorValue:
        """A constant, or now and then one that a call writes to."""
        value = self.constant(rows, columns, scale=columns**-0.5)
        if self.chance(0.05) and rows >= CONTEXT:
            lying = self.b.call("aten.view_copy.default", value, [1, rows, 1, columns])
            self.write_cache(lying)
        return value

    def blocks(self, rows: int, columns: int) -> TensorValue:
        count = rows * columns // 32
        data = self.rng.integers(0, 256, (count, 34), dtype=np.uint8)
        data[:, :2] = self.rng.uniform(0.001, 0.01, (count, 1)).astype(np.float16).view(np.uint8)
        return self.b.stored((rows, columns), "Q8_0", Blob(data.tobytes(), 0, data.size))

    def norm(self, node: Node, eps: float | None = None) -> Node:
        if not node.dims or node.dims[-1].letters:
            return self.unary(node)
        weight = self.eighths(node.dims[-1].number)
        if self.chance(0.15):
            weight = self.b.call("aten.add.Tensor", weight, self.eighths(*weight.dims), 1)
        eps = self.choose(1e-5, 1e-6) if eps is None else eps
        if self.chance(0.3):
            return self._plain_norm(node, weight, eps)
        return Node(self.b.call("et_vk.rms_norm.default", node.value, weight, eps), node.dims)

    def _plain_norm(self, node: Node, weight: TensorValue, eps: float) -> Node:
        """A norm as exporters take it apart, or nearly so."""
        b, x = self.b, node.value
        power = self.choose(2, 2, 2, 4)
        square = b.call("aten.mul.Tensor", x, x) if self.chance(0.5) else b.call("aten.pow.Tensor_Scalar", x, power)
        dim = -1 if self.chance(0.8) else int(self.rng.integers(len(node.dims)))
        mean = b.call("aten.mean.dim", square, [dim], True, None)
        if self.chance(0.5):
            total = b.call("aten.add.Tensor", mean, b.constant(np.float32(eps)), 1)
        else:
            total = b.call("aten.add.Scalar", mean, eps, 1)
        root = Node(b.call("aten.rsqrt.default", total), node.dims)
        normed = b.call("aten.mul.Tensor", *self.rng.permutation([x, root.value]).tolist())
        if self.chance(0.15):
            self.pool.append(Node(normed, node.dims))
        return Node(b.call("aten.mul.Tensor", *self.rng.permutation([normed, weight]).tolist()), node.dims)

    def add(self, a: Node, b: Node) -> Node:
        if self.chance(0.3):
            a, b = b, a
        return Node(self.b.call("aten.add.Tensor", a.value, b.value, 0.5 if self.chance(0.1) else 1), a.dims)

    def mul(self, a: Node, b: Node) -> Node:
        if self.chance(0.3):
            a, b = b, a
        return Node(self.b.call("aten.mul.Tensor", a.value, b.value), a.dims)

    # ---- what passes look for, more or less

    def _linear_of_view(self) -> Node:
        seen = self.disturbed(self.view(self.pick(wide=True)))
        if not seen.dims or seen.dims[-1].letters:
            return self.unary(seen)
        made = self.disturbed(self.linear(seen, self.choose(self.width, 8)))
        if made.dims == seen.dims and self.chance(0.5):
            made = self.add(self.unary(seen), made)
        return self.view(made) if self.chance(0.7) else made

    def _residual(self) -> Node:
        x = self.pick(wide=True)
        if not x.dims or x.dims[-1].letters:
            return self.unary(x)
        h = x if self.chance(0.3) else self.disturbed(self.choose(self.norm, self.unary, self.view)(x))
        if not h.dims or h.dims[-1].letters:
            return self.unary(h)
        y = self.disturbed(self.linear(h, x.dims[-1].number))
        if self.chance(0.1):
            return self.add(y, y)
        if y.dims == x.dims:
            return self.add(x, y)
        if product(list(y.dims)) == product(list(x.dims)):
            return self.add(x, self.viewed(y, x.dims))
        return y

    def _gated(self, x: Node | None = None) -> Node:
        x = x or self.pick(wide=True)
        if not x.dims or x.dims[-1].letters:
            return self.unary(x)
        kind, bias, n = self.linear_kind(), self.chance(0.3), 8
        if self.chance(0.3):
            both = self.disturbed(self.linear(x, 2 * n, bias, kind))
            parts = self.b.call("aten.split_with_sizes_copy.default", both.value, [n, n], -1)
            gate, up = (Node(part, (*x.dims[:-1], Size(n))) for part in parts)
        else:
            gate = self.disturbed(self.linear(x, n, bias, kind))
            other = self.like(x) if self.chance(0.2) else None
            up = self.disturbed(self.linear(other or x, n, bias != self.chance(0.1), kind))
        if gate.dims != up.dims:
            return self.unary(gate)
        if self.chance(0.3):
            swapped = (*reversed(gate.dims[:-1]), gate.dims[-1])
            gate, up = self.viewed(gate, swapped), self.viewed(up, swapped)
        form = self.choose("silu", "sigmoid", "gelu", "silu_mul")
        if form == "silu_mul":
            return Node(self.b.call("hightide.silu_mul.default", gate.value, up.value), gate.dims)
        if form == "sigmoid":
            active = self.mul(gate, Node(self.b.call("aten.sigmoid.default", gate.value), gate.dims))
        else:
            active = Node(self.b.call(f"aten.{form}.default", gate.value), gate.dims)
        out = self.mul(self.disturbed(active), up)
        return self.linear(out, self.width, kind="float") if self.chance(0.6) else out

    def _add_norm(self) -> Node:
        x = self.pick(wide=True)
        if not x.dims or x.dims[-1].letters:
            return self.unary(x)
        other = self.like(x) or self.unary(x)
        if self.chance(0.4):
            other = self.disturbed(self.norm(other))
        total = self.add(other, other) if self.chance(0.1) else self.add(x, other)
        normed = self.norm(self.disturbed(total))
        if len(total.dims) == 1 and self.chance(0.5):
            weighed = self.b.call("et_vk.rms_norm.default", x.value, total.value, 1e-5)
            self.pool.append(Node(weighed, x.dims))
        self.pool.append(normed)
        return total if self.chance(0.5) else normed

    def _selected(self) -> Node:
        x = self.pick(wide=True)
        if not x.dims or x.dims[-1].letters:
            return self.unary(x)
        y = x
        for _ in range(int(self.rng.integers(1, 4))):
            step = self.choose(self.norm, self.unary, lambda n: self.linear(n, n.dims[-1].number), self._gated)
            y = self.disturbed(step(y))
        axis = int(self.rng.integers(len(y.dims)))
        if self.chance(0.5):
            value = self.b.call("aten.select_copy.int", y.value, axis, self.choose(0, -1))
            return Node(value, (*y.dims[:axis], *y.dims[axis + 1 :]))
        value = self.b.call("aten.slice_copy.Tensor", y.value, axis, -1, None, 1)
        return Node(value, (*y.dims[:axis], ONE, *y.dims[axis + 1 :]))

    def _sum(self) -> Node:
        x = self.pick()
        other = self.like(x)
        if other is not None:
            return self.choose(self.add, self.mul)(x, other)
        return Node(self.b.call("aten.mul.Tensor", x.value, self.constant(1)), x.dims or (ONE,))

    def permute(self, x: Node, *order: int) -> Node:
        return Node(self.b.call("aten.permute_copy.default", x.value, list(order)), tuple(x.dims[n] for n in order))

    def _permuted(self) -> Node:
        """Dims in another order, and in another again."""
        x = self.pick()
        if len(x.dims) < 2:
            return self.unary(x)
        for _ in range(2):
            x = self.permute(x, *(int(n) for n in self.rng.permutation(len(x.dims))))
        return x

    def _plain_attention(self) -> Node:
        """Of x [1, S, width] over itself, with one head, as products and a softmax."""
        tokens = Size(1, "S")
        fit = [n for n in self.pool if n.dims == (ONE, tokens, self.wide)]
        if not fit:
            return self._permuted()
        x = self.choose(*fit)
        head = self.permute(self.viewed(x, (ONE, tokens, ONE, self.wide)), 0, 2, 1, 3)
        keys = self.viewed(self.permute(head, 0, 1, 3, 2), (ONE, self.wide, tokens))
        rows = self.viewed(head, (ONE, tokens, self.wide))
        scores = self.disturbed(Node(self.b.call("aten.bmm.default", rows.value, keys.value), (ONE, tokens, tokens)))
        apart = self.viewed(scores, (ONE, ONE, tokens, tokens))
        weights = Node(self.b.call("aten._softmax.default", apart.value, -1, False), apart.dims)
        joined = self.viewed(weights, (ONE, tokens, tokens))
        made = Node(self.b.call("aten.bmm.default", joined.value, rows.value), (ONE, tokens, self.wide))
        back = self.permute(self.viewed(made, (ONE, ONE, tokens, self.wide)), 0, 2, 1, 3)
        return self.add(x, self.viewed(back, (ONE, tokens, self.wide)))

    def _attention_of_rows(self) -> Node:
        """Of x [1, S, width] over itself, with heads that are turned in and out."""
        tokens, heads = Size(1, "S"), Size(self.choose(1, 2) if self.width % 2 == 0 else 1)
        fit = [n for n in self.pool if n.dims == (ONE, tokens, self.wide)]
        if not fit:
            return self._permuted()
        x, depth = self.choose(*fit), Size(self.width // heads.number)
        q, k, v = (
            self.disturbed(self.permute(self.viewed(self.unary(x), (ONE, tokens, heads, depth)), 0, 2, 1, 3))
            for _ in range(3)
        )
        made = Node(self.b.call("et_vk.sdpa.default", q.value, k.value, v.value), (ONE, heads, tokens, depth))
        return self.viewed(self.permute(self.disturbed(made), 0, 2, 1, 3), (ONE, tokens, self.wide))

    def _shared_weight(self) -> Node:
        """x [B, S, width] times one weight, as a product of batches, and a bias."""
        fit = [n for n in self.pool if len(n.dims) == 3 and n.dims[-1] == self.wide]
        if not fit:
            return self._permuted()
        x, columns = self.choose(*fit), Size(self.choose(5, self.width))
        weight = self.constant(self.width, columns.number, scale=0.3)
        sizes = [self.symint(x.dims[0]), self.width, columns.number]
        every = self.disturbed(
            Node(self.b.call("aten.expand_copy.default", weight, sizes), (x.dims[0], self.wide, columns))
        )
        made = Node(self.b.call("aten.bmm.default", x.value, every.value), (*x.dims[:2], columns))
        seen = self.viewed(self.disturbed(made), made.dims)
        return Node(self.b.call("aten.add.Tensor", seen.value, self.constant(columns.number)), seen.dims)

    def _broadcast(self) -> Node:
        """A sum of rows and of others that are as many, or one; at the max they are as many."""
        before = len(self.pool)
        self._input((Size(1, "S"), self.wide))
        self._input((Size(1, "T"), self.wide))
        x, other = self.pool[before:]
        del self.pool[before:]
        if self.chance(0.5):
            x = self.linear(x, self.width)
        total = self.add(x, other)  # of rows that no letter stands for
        self.outputs.append(self.norm(total))
        return self.pool[-1]

    def _read_cache(self) -> Node:
        cache = self.choose(*self.caches)
        dims = (ONE, Size(CONTEXT), Size(2), Size(4))
        node = Node(cache, dims)
        if self.chance(0.3):
            return self.linear(node, 4)
        if self.chance(0.3):
            seen = self.viewed(node, (Size(CONTEXT), Size(8)))
            if self.chance(0.5):
                self.write_cache(cache)
            return self.linear(seen, 8)
        return self.unary(node)

    def _across_a_write(self) -> Node:
        """What was read of a cache, used after the cache was written to."""
        cache = self.choose(*self.caches)
        node = Node(cache, (ONE, Size(CONTEXT), Size(2), Size(4)))
        if self.chance(0.3):
            node = self.viewed(node, (ONE, Size(CONTEXT), Size(8)))
        other = self.unary(node)
        form = self.choose("linear", "sum", "select")
        if form == "linear":
            read = self.linear(node, node.dims[-1].number)
        else:
            read = self.norm(node) if form == "select" else self.add(node, other)
        if self.chance(0.7):
            self.write_cache(cache)
        if form == "linear":
            return self.add(other, read)
        if form == "sum":
            return self.norm(read)
        return Node(self.b.call("aten.select_copy.int", read.value, 1, 0), (ONE, *node.dims[2:]))

    def _twice(self) -> Node:
        """The same work done twice, the second time perhaps on memory that has changed, or written to."""
        x = self.pick()
        one, two = (Node(self.b.call("aten.mul.Scalar", x.value, 0.75), x.dims) for _ in range(2))
        if self.chance(0.3):
            cache = self.choose(*self.caches)
            first = self.b.call("aten.mul.Scalar", cache, 2.0)
            second = self.b.call("aten.mul.Scalar", cache, 2.0)
            self.write_cache(self.choose(cache, second))
            dims = (ONE, Size(CONTEXT), Size(2), Size(4))
            return self.add(Node(first, dims), Node(self.b.call("aten.neg.default", second), dims))
        return self.add(self.disturbed(one), two)

    def _attention(self) -> Node:
        """q, k and v of one x, turned, over a cache; x is [1, S, width]."""
        tokens = Size(1, "S")
        fit = [n for n in self.pool if n.dims == (ONE, tokens, self.wide)]
        if not fit:
            return self._residual()
        x, depth, heads, kv_heads = self.choose(*fit), 4, self.choose(2, 4), self.choose(1, 2)
        h = self.norm(x, 1e-5)
        if self.chance(0.2):
            h = self.viewed(h, (tokens, self.wide))
        kind, bias = self.linear_kind(), self.chance(0.2)
        counts = (heads, kv_heads, kv_heads)
        if self.chance(0.25):
            both = self.disturbed(self.linear(h, sum(counts) * depth, bias, kind))
            parts = self.b.call(
                "aten.split_with_sizes_copy.default", both.value, [n * depth for n in counts], len(both.dims) - 1
            )
            made = [Node(p, (*both.dims[:-1], Size(n * depth))) for p, n in zip(parts, counts, strict=True)]
            if self.chance(0.3):
                made = [made[0], made[2], made[1]]
        else:
            made = [self.disturbed(self.linear(h, n * depth, bias, kind)) for n in counts]
        q, k, v = (self.viewed(m, (ONE, tokens, Size(n), Size(depth))) for m, n in zip(made, counts, strict=True))
        if self.chance(0.3):
            q, k = self.norm(q, 1e-5), self.norm(k, self.choose(1e-5, 1e-5, 1e-6))
        q, k, v = self.disturbed(q), self.disturbed(k), self.disturbed(v)
        if not all(len(n.dims) == 4 and n.dims[1] == tokens for n in (q, k, v)):
            return self.unary(q)
        q, k = self._turned(q, k, depth)
        caches = [self.b.zeros((1, CONTEXT, kv_heads, depth)) for _ in range(2)]
        if self.chance(0.2):
            self.write_cache(caches[0])
        q, k = self.disturbed(q), self.disturbed(k)
        form = self.choose("sdpa", "sdpa", "ours", "ours", "custom")
        if form == "custom":
            out = self._attention_over_updates(q, k, v, caches)
        elif form == "sdpa":
            options: list[Any] = [1, None, 0.0, self.chance(0.8), None]
            out = self.b.call("sdpa_with_kv_cache.default", q.value, k.value, v.value, *caches, self.position, *options)
        else:
            more = [0.4, self.choose(0, 3), 0.0]
            out = self.b.call("hightide.attention.default", q.value, k.value, v.value, *caches, self.position, *more)
        attended = self.disturbed(Node(out, (ONE, tokens, Size(heads), Size(depth))))
        flat = self.viewed(attended, (ONE, tokens, Size(heads * depth)))
        return self.add(x, self.linear(flat, self.width))

    def _attention_over_updates(self, q: Node, k: Node, v: Node, caches: list[TensorValue]) -> TensorValue:
        """As exporters write it that do not join the three, or nearly so."""
        for rows, cache in zip((k, v), caches, strict=True):
            held = self.choose(*caches) if self.chance(0.1) else cache
            self.b.call("llama.update_cache.default", rows.value, held, self.position)
            if self.chance(0.1):
                self.outputs.append(self.unary(Node(held, (ONE, Size(CONTEXT), *rows.dims[2:]))))
        start = self.position if self.chance(0.9) else 0
        options = [None, 0.0, self.chance(0.8), None]
        return self.b.call("llama.custom_sdpa.default", q.value, *caches, start, *options)

    def _turned(self, q: Node, k: Node, depth: int) -> tuple[Node, Node]:
        if self.chance(0.4):
            return self._turned_apart(q, k, depth)
        if self.chance(0.5):
            tables = [self.constant(CONTEXT, depth) for _ in range(2)]
            start = self.position if self.chance(0.75) else 0
            made = self.b.call("et_vk.apply_rotary_emb_hf.default", q.value, k.value, *tables, start)
        else:
            rows = [self._table_rows(depth // 2) for _ in range(2)]
            made = self.b.call("et_vk.apply_rotary_emb.default", q.value, k.value, *(node.value for node in rows))
        return Node(made[0], q.dims), Node(made[1], k.dims)

    def _table_rows(self, width: int) -> Node:
        """A row of a table for each token."""
        length = self.symint(Size(1, "S"))
        start = self.position if self.chance(0.75) else 0
        end = self.b.call("add", start, length) if start is self.position else length
        table, most = self.constant(CONTEXT, width), [(MOST["S"], width)]
        rows = self.b.call("aten.slice_copy.Tensor", table, 0, start, end, 1, dims=most)
        return Node(rows, (Size(1, "S"), Size(width)))

    def _turned_apart(self, q: Node, k: Node, depth: int) -> tuple[Node, Node]:
        """As exporters take it apart, or nearly so."""
        halves, tokens = self.chance(0.5), Size(1, "S")
        heads_first = halves and self.chance(0.4)
        turning = depth if not halves or self.chance(0.7) else depth // 2  # elements of a head
        width = Size(turning if halves else turning // 2)
        rows = (ONE, ONE, tokens, width) if heads_first else (ONE, tokens, ONE, width)
        tables = [self.viewed(self._table_rows(width.number), rows) for _ in range(2)]
        turned = []
        for heads in (q, k):
            x = self.permute(heads, 0, 2, 1, 3) if heads_first else heads
            cos, sin = reversed(tables) if self.chance(0.05) else tables
            made = self._halves(x, cos, sin) if halves else self._neighbours(x, cos, sin)
            turned.append(self.permute(made, 0, 2, 1, 3) if heads_first else made)
        return turned[0], turned[1]

    def _slice(self, x: Node, start: int, end: int) -> Node:
        """Elements of each row."""
        last = len(x.dims) - 1
        past = 2**63 - 1 if end == x.dims[-1].number and self.chance(0.5) else end
        value = self.b.call("aten.slice_copy.Tensor", x.value, self.choose(last, -1), start, past, 1)
        return Node(value, (*x.dims[:-1], Size(end - start)))

    def _joined(self, *parts: Node) -> Node:
        """Rows side by side."""
        value = self.b.call("aten.cat.default", [part.value for part in parts], -1)
        return Node(value, (*parts[0].dims[:-1], Size(sum(part.dims[-1].number for part in parts))))

    def _times(self, heads: Node, table: Node) -> Node:
        factors = (table, heads) if self.chance(0.3) else (heads, table)
        return Node(self.b.call("aten.mul.Tensor", *(factor.value for factor in factors)), heads.dims)

    def _halves(self, heads: Node, cos: Node, sin: Node) -> Node:
        width, whole = cos.dims[-1].number, heads.dims[-1].number
        x = self._slice(heads, 0, width) if width < whole else heads
        first, second = self._slice(x, 0, width // 2), self._slice(x, width // 2, width)
        negative = Node(self.b.call("aten.neg.default", second.value), second.dims)
        parts = (first, negative) if self.chance(0.05) else (negative, first)
        made = self.add(self._times(x, cos), self._times(self.disturbed(self._joined(*parts)), sin))
        if width == whole:
            return self._joined(made) if self.chance(0.2) else made
        return self._joined(made, self._slice(heads, width, whole))

    def _neighbours(self, heads: Node, cos: Node, sin: Node) -> Node:
        pairs = self.viewed(heads, (*heads.dims[:3], cos.dims[-1], Size(2)))
        columns = [self._slice(pairs, n, n + 1) for n in range(2)]
        even, odd = (
            Node(self.b.call("aten.squeeze_copy.dims", column.value, [4]), column.dims[:-1]) for column in columns
        )
        if self.chance(0.05):
            even, odd = odd, even
        less = self.b.call("aten.sub.Tensor", self._times(even, cos).value, self._times(odd, sin).value, 1)
        more = self.add(self._times(even, sin), self._times(odd, cos))
        sides = [
            Node(self.b.call("aten.unsqueeze_copy.default", side.value, 4), (*side.dims, ONE))
            for side in (self.disturbed(Node(less, even.dims)), more)
        ]
        return self.viewed(self._joined(*sides), heads.dims)


def _most(size: Size) -> int:
    return size.number * int(np.prod([MOST[letter] for letter in size.letters]))


Results = list[list[np.ndarray] | None]


def exact_results(graph: Graph, calls: Sequence[list[np.ndarray]]) -> tuple[Results, list[np.ndarray]]:
    """What each call gives in float64 on NumPy, None for one that is refused, and the state that is left."""
    session, outputs = CpuSession(graph, dtype="float64"), []
    for given in calls:
        try:
            outputs.append(session.run(given))
        except InputError:
            outputs.append(None)
    return outputs, session.read_state()
