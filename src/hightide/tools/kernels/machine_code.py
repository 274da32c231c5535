"""Machine code of AMD GPUs as the driver prints it: its blocks, its loops, and how many instructions of each kind.

Where a driver has no disassembler for a family, its compiler's last form of the code is read instead, which has the
same instructions but no waits. Where a block has two ways on, each is taken to be as likely, but code for which no lane
may be left is taken to run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_LABEL = re.compile(r"(BB\d+):?")
_TARGET = re.compile(r"\bBB\d+\b")
_REPEATED = re.compile(r"\(then repeated (\d+) times\)")
_RESULT = re.compile(r"^.*? = (?=[a-z])")  # in the compiler's form: "v1: %20:v[1] = v_rcp_f32 %19:v[1]"
_CONSTANT = re.compile(r"s_cmp_(?:ge|lt|gt|le|lg|eq)_[ui](?:32|64) \S+, (0x[0-9a-f]+|\d+)$")
_SLOW = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")  # at a quarter of the rate
_PRODUCT = re.compile(r"v_(dual_|pk_)?(fma|fmac|fmamk|fmaak|mac|mad|dot\d\w*?)_(?![ui]\d|mixlo_u)")
_FREE = ("s_delay_alu", "s_clause", "s_nop", "s_endpgm", "s_code_end", "s_waitcnt_depctr", "s_inst_prefetch")
_BYTES = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_BYTES |= {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "ushort": 2, "sshort": 2, "ubyte": 1, "sbyte": 1}


@dataclass(frozen=True)
class Instruction:
    text: str

    @property
    def name(self) -> str:
        return self.text.split(maxsplit=1)[0]

    @property
    def kind(self) -> str:
        """fma, slow, valu, load, store, shared, scalar, wait, barrier or branch; "" for what takes no time."""
        name = self.name
        if name.startswith("v_"):
            return "fma" if _PRODUCT.match(name) else "slow" if _SLOW.match(name) else "valu"
        if name.startswith(("buffer_", "global_", "flat_", "scratch_")):
            return "store" if "store" in name or "atomic" in name else "load"
        if name.startswith("ds_"):
            return "shared"
        if name.startswith(("s_branch", "s_cbranch", "p_branch", "p_cbranch")):
            return "branch"
        if "barrier" in name:
            return "barrier"
        if name.startswith(_FREE) or name.startswith("p_"):
            return ""
        if name.startswith("s_wait"):
            return "wait" if "vmcnt" in self.text or name.startswith("s_wait_loadcnt") else ""
        return "scalar"

    @property
    def bytes(self) -> int:
        """That each lane moves."""
        size = next((_BYTES[word] for word in self.name.split("_") if word in _BYTES), 4)
        return size * (2 if re.search("2addr|read2|write2", self.name) else 1)

    @property
    def products(self) -> int:
        """Multiply-adds of each lane; two instructions may be one."""
        parts = [part.split(maxsplit=1)[0] for part in self.text.split("::") if part.strip()]
        each = 2 if self.name.startswith(("v_pk_", "v_dot2")) else 4 if self.name.startswith("v_dot4") else 1
        return each * sum(bool(_PRODUCT.match(part)) for part in parts)


@dataclass
class InstructionCounts:
    """What a wave starts: instructions by kind; and for each lane, what they move and multiply."""

    kinds: dict[str, float] = field(default_factory=dict)
    loaded: float = 0.0  # bytes
    shared: float = 0.0  # bytes, to and from shared memory
    products: float = 0.0  # multiply-adds
    stalls: float = 0.0  # times that the wave waits for loads

    def add(self, other: InstructionCounts, times: float = 1.0) -> None:
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0.0) + count * times
        self.loaded += other.loaded * times
        self.shared += other.shared * times
        self.products += other.products * times
        self.stalls += other.stalls * times


@dataclass(frozen=True)
class Block:
    """Instructions that run one after the other, from a label on."""

    label: str
    instructions: tuple[Instruction, ...]

    @property
    def text(self) -> str:
        return "\n".join((f"{self.label}:", *(f"    {one.text}" for one in self.instructions)))

    @property
    def targets(self) -> tuple[str, ...]:
        """Where its branches go."""
        return tuple(label for one in self.instructions if one.kind == "branch" for label in _TARGET.findall(one.text))

    @property
    def skips(self) -> bool:
        """Whether its branch is past code that no lane needs."""
        return any("execz" in one.name or ":exec BB" in one.text for one in self.instructions)

    @property
    def falls_through(self) -> bool:
        return not any(one.name in ("s_branch", "s_endpgm") or one.name.startswith("p_") for one in self.instructions)


@dataclass(eq=False)
class Loop:
    """The blocks from its head to the branch back, by number; those of loops within are theirs."""

    first: int
    last: int
    inner: list[Loop] = field(default_factory=list)
    own: InstructionCounts = field(default_factory=InstructionCounts)  # of one turn, without the loops within
    turns: int | None = None  # if the code says so

    @property
    def brief(self) -> tuple[float, float, float, float]:
        """Of one turn: multiply-adds, other arithmetic, loads, waits for them."""
        kinds = self.own.kinds
        other = kinds.get("valu", 0.0) + kinds.get("slow", 0.0)
        return kinds.get("fma", 0.0), other, kinds.get("load", 0.0) + kinds.get("shared", 0.0), self.own.stalls

    @property
    def innermost(self) -> list[Loop]:
        return [loop for one in self.inner for loop in one.innermost] if self.inner else [self]


@dataclass
class MachineCode:
    blocks: Sequence[Block]
    outside: InstructionCounts  # what is in no loop
    loops: list[Loop]  # the outermost ones
    wave: int  # lanes
    lanes: int  # of a workgroup
    statistics: dict[str, int]  # as the driver counts: "VGPRs", "Subgroups per SIMD", ...

    @property
    def main_loop(self) -> Loop | None:
        """The innermost loop that multiplies most, or else loads most."""
        found = [loop for one in self.loops for loop in one.innermost]
        return max(found, key=lambda loop: (loop.own.products, loop.own.loaded), default=None)

    @property
    def main_text(self) -> str:
        """The main loop as the driver prints it, or all of the code if it has no loop."""
        loop = self.main_loop
        blocks = self.blocks if loop is None else self.blocks[loop.first : loop.last + 1]
        return "\n".join(block.text for block in blocks)

    @property
    def registers(self) -> int:
        return self.statistics.get("VGPRs", 0)

    @property
    def spills(self) -> int:
        return self.statistics.get("Spilled VGPRs", 0) + self.statistics.get("Scratch size", 0)

    @property
    def shared_memory(self) -> int:
        """Bytes of a workgroup."""
        return self.statistics.get("LDS size", 0)

    @property
    def waves(self) -> int:
        """Of a SIMD, at a time."""
        return self.statistics.get("Subgroups per SIMD", 0)


def read_machine_code(report: str, lanes: int) -> MachineCode:
    """What RADV prints of one shader, whose workgroups have so many lanes."""
    statistics = {name: int(count) for name, count in re.findall(r"^([A-Za-z -]+): (\d+)\s*$", report, re.M)}
    blocks = read_blocks(report.rpartition("disasm:")[2])
    if not any(one.kind for block in blocks for one in block.instructions):
        blocks = read_blocks(report.rpartition("ACO shader stage:")[2].partition("disasm:")[0])
    loops = find_loops(blocks)
    weights = _weights(blocks, 0, len(blocks) - 1, loops)
    outside, inside = InstructionCounts(), dict[int, Loop]()
    for loop in _all(loops):  # the outer ones first
        inside |= dict.fromkeys(range(loop.first, loop.last + 1), loop)
        loop.turns = _turns(blocks[loop.first : loop.last + 1])
    for n, counts in enumerate(count_blocks(blocks)):
        (inside[n].own if n in inside else outside).add(counts, weights.get(n, 0.0))
    narrow = any("exec_lo" in one.text for block in blocks for one in block.instructions)
    wave = 32 if narrow else 64  # RADV's usual one has 64
    return MachineCode(blocks, outside, loops, wave, lanes, statistics)


def count_blocks(blocks: Sequence[Block]) -> list[InstructionCounts]:
    """What each block has. A wait belongs to the block with the loads that are waited for."""
    made = [InstructionCounts() for _ in blocks]
    loading: InstructionCounts | None = None
    for block, counts in zip(blocks, made, strict=True):
        for one in block.instructions:
            kind = one.kind
            if kind:
                counts.kinds[kind] = counts.kinds.get(kind, 0.0) + 1
            if kind == "load":
                counts.loaded += one.bytes
                loading = counts
            elif kind == "shared":
                counts.shared += one.bytes
            elif kind == "wait" and loading is not None:
                loading.stalls += 1
                loading = None
            counts.products += one.products
    return made


def read_blocks(code: str) -> list[Block]:
    found: list[tuple[str, list[Instruction]]] = []
    for line in code.splitlines():
        text = _RESULT.sub("", line.partition(";")[0].strip())
        if label := _LABEL.fullmatch(text):
            found.append((label[1], []))
        elif found and (again := _REPEATED.fullmatch(text)):
            found[-1][1].extend(found[-1][1][-1:] * int(again[1]))
        elif found and line[:1] in ("\t", " ") and text:
            found[-1][1].append(Instruction(text))
        elif found and not line.strip():
            break
    return [Block(label, tuple(instructions)) for label, instructions in found]


def find_loops(blocks: Sequence[Block]) -> list[Loop]:
    """From branches back; two that go to one head are one loop."""
    numbers = {block.label: n for n, block in enumerate(blocks)}
    ends: dict[int, int] = {}
    for n, block in enumerate(blocks):
        for label in block.targets:
            if (head := numbers.get(label, n + 1)) <= n:
                ends[head] = n
    outermost: list[Loop] = []
    around: list[Loop] = []
    for first, last in sorted(ends.items()):
        while around and around[-1].last < first:
            around.pop()
        loop = Loop(first, last)
        (around[-1].inner if around else outermost).append(loop)
        around.append(loop)
    return outermost


def _all(loops: Sequence[Loop]) -> list[Loop]:
    return [found for loop in loops for found in (loop, *_all(loop.inner))]


def _weights(blocks: Sequence[Block], first: int, last: int, inner: Sequence[Loop]) -> dict[int, float]:
    """How often each block from `first` to `last` runs in one turn; blocks of a loop, in one turn of that.

    A loop is left at its end only, and what follows it runs as often as it is come to.
    """
    numbers = {block.label: n for n, block in enumerate(blocks)}
    heads = {loop.first: loop for loop in inner}
    weights, found = {first: 1.0}, dict[int, float]()
    n = first
    while n <= last:
        weight, loop = weights.get(n, 0.0), heads.get(n)
        if loop is not None:
            found |= _weights(blocks, loop.first, loop.last, loop.inner)
            ways, n = {loop.last + 1}, loop.last
        else:
            found[n], block = weight, blocks[n]
            ways = {numbers[label] for label in block.targets if n < numbers.get(label, n) <= last}
            ways |= {n + 1} if block.falls_through else set()
            if block.skips and ways:
                ways = {min(ways)}
        for way in ways:
            weights[way] = weights.get(way, 0.0) + weight / len(ways)
        n += 1
    return found


def _turns(blocks: Sequence[Block]) -> int | None:
    """The constant that the counter is compared with, near the head of a loop."""
    for one in (instruction for block in blocks[:4] for instruction in block.instructions):
        if (hit := _CONSTANT.match(one.text)) and int(hit[1], 0) > 1:
            return int(hit[1], 0)
    return None
