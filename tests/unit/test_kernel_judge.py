"""Machine code as a driver prints it, and times that follow from it, without a driver."""

from __future__ import annotations

import pytest

from hightide.errors import InputError
from hightide.ops.cost import Cost
from hightide.tools.kernels.judged import JudgedDispatch, JudgedLevel, KernelReport
from hightide.tools.kernels.kernel_page import make_page
from hightide.tools.kernels.machine_code import Instruction, MachineCode, read_machine_code
from hightide.tools.kernels.target_gpus import GPUS, TargetGpu, target_gpu
from hightide.tools.kernels.time_model import executed, predict

# An outer loop that loads, an inner one of eight turns with two ways through it, and a part that lanes may skip.
REPORT = """
ACO shader stage: SW (CS), HW (COMPUTE_SHADER)
BB0
	s1: %1:s[0] = s_mov_b32 %2:s[1]
disasm:
BB0:
	s_load_b128 s[8:11], s[2:3], null                           ; f4080201 f8000000
	s_waitcnt lgkmcnt(0)                                        ; bf89fc07
	v_rcp_f32_e32 v1, v1                                        ; 7e025501
	s_nop 0                                                     ; bf800000
	(then repeated 4 times)
BB1:
	s_clause 0x1                                                ; bf850003
	buffer_load_b128 v[20:23], v14, s[24:27], 0 offen           ; e05c0000 8046140e
	buffer_load_b128 v[24:27], v15, s[24:27], 0 offen           ; e05c0000 8046180f
BB2:
	s_cmp_ge_u32 s13, 8                                         ; bf09880d
	s_cbranch_scc1 BB6                                          ; bfa200c2
BB3:
	s_waitcnt vmcnt(1)                                          ; bf890ff7
	s_cbranch_scc0 BB5                                          ; bfa1000d
BB4:
	v_and_b32_e32 v37, 0xf000, v36                              ; 364a48ff 0000f000
	v_and_b32_e32 v38, 0xf000, v36                              ; 364a48ff 0000f000
BB5:
	buffer_load_b64 v[52:53], v52, s[28:31], 0 offen            ; e05c0000 80473434
	ds_load_2addr_b64 v[60:63], v2 offset1:1                    ; d9dc0100 3c000002
	s_waitcnt vmcnt(0)                                          ; bf8903f7
	v_fmac_f32_e32 v15, v49, v55                                ; 561e6f31
	v_dual_fmac_f32 v35, v37, v55 :: v_dual_mul_f32 v1, v2, v3  ; 56466f25
	v_pk_fma_f16 v1, v2, v3, v4                                 ; cc0e4001
	s_branch BB2                                                ; bfa0ff34
BB6:
	s_cbranch_execz BB8                                         ; bfa50005
BB7:
	v_add_f32_e32 v1, v2, v3                                    ; 06020503
BB8:
	s_cbranch_scc1 BB1                                          ; bfa2ffdc
BB9:
	buffer_store_b32 v1, v2, s[0:3], 0 offen                    ; e0680000
	s_endpgm                                                    ; bfb00000

VGPRs: 60
Spilled VGPRs: 0
LDS size: 2560
Subgroups per SIMD: 24
"""


@pytest.fixture
def code() -> MachineCode:
    return read_machine_code(REPORT, 64)


def test_loops_and_what_is_in_them(code: MachineCode) -> None:
    (outer,) = code.loops
    (inner,) = outer.inner
    assert code.main_loop is inner and (inner.turns, outer.turns) == (8, 8)
    assert inner.own.kinds == {"scalar": 1, "branch": 3, "wait": 2, "valu": 1, "load": 1, "shared": 1, "fma": 3}
    assert (inner.own.products, inner.own.loaded, inner.own.shared, inner.own.stalls) == (4, 8, 16, 1)
    assert outer.own.kinds == {"load": 2, "branch": 2, "valu": 1}
    assert (outer.own.loaded, outer.own.stalls) == (32, 1)  # waited for in the inner loop, at its first turn
    assert code.outside.kinds == {"scalar": 1, "slow": 1, "store": 1}


def test_what_the_driver_counts(code: MachineCode) -> None:
    assert (code.registers, code.spills, code.shared_memory, code.waves, code.wave) == (60, 0, 2560, 24, 64)
    assert read_machine_code(REPORT.replace("s_cbranch_execz BB8", "s_mov_b32 exec_lo, s1"), 64).wave == 32
    assert read_machine_code(REPORT.replace("Spilled VGPRs: 0", "Spilled VGPRs: 3"), 64).spills == 3


def test_without_a_disassembler_the_compilers_own_form_is_read() -> None:
    text = """
ACO shader stage: SW (CS), HW (COMPUTE_SHADER)
BB0
/* logical preds: / linear preds: / kind: uniform, top-level, */
	s2: %400:s[0-1] = p_startpgm
	p_branch BB1
BB1
	v4: %1:v[0-3] = buffer_load_dwordx4 %2:s[0-3], %3:v[4], 0 offen
	v1: (precise)%4:v[5] = v_fma_f32 %1:v[0], %1:v[1], %4:v[5]
	s1: %5:scc = s_cmp_lt_u32 %6:s[5], 16
	p_cbranch_nz %5:scc BB1, BB2
BB2
	s_endpgm

disasm:
bf800000 bf800000

VGPRs: 8
"""
    found = read_machine_code(text, 64)
    (loop,) = found.loops
    assert (loop.turns, loop.own.loaded, loop.own.products) == (16, 16, 1)


@pytest.mark.parametrize(
    ("text", "kind", "size", "products"),
    [
        ("v_dot2_f32_f16 v0, v1, v2, v3", "fma", 4, 2),
        ("v_dot4_i32_iu8 v0, v1, v2, v3", "fma", 4, 4),
        ("v_fma_mix_f32 v0, v1, v2, v3", "fma", 4, 1),
        ("v_mad_u32_u24 v0, v1, v2, v3", "valu", 4, 0),
        ("v_exp_f32_e32 v0, v1", "slow", 4, 0),
        ("global_load_d16_b16 v0, v[1:2], off", "load", 2, 0),
        ("buffer_load_ubyte v0, v1, s[0:3], 0 offen", "load", 1, 0),
        ("buffer_atomic_add_u32 v0, v1, s[0:3], 0", "store", 4, 0),
        ("ds_read2_b32 v[0:1], v2", "shared", 8, 0),
        ("s_barrier", "barrier", 4, 0),
        ("s_wait_loadcnt 0x0", "wait", 4, 0),
        ("s_waitcnt lgkmcnt(0)", "", 4, 0),
        ("s_delay_alu instid0(VALU_DEP_1)", "", 4, 0),
    ],
)
def test_kinds_of_instructions(text: str, kind: str, size: int, products: int) -> None:
    one = Instruction(text)
    assert (one.kind, one.products) == (kind, products)
    assert kind not in ("load", "store", "shared") or one.bytes == size


# ---- times

GPU = TargetGpu("a GPU", "X", units=10, clock=1.0, bandwidth=100, latency=1.0, dispatch=2.0)


def test_turns_follow_from_the_plan(code: MachineCode) -> None:
    """4 multiply-adds of each lane in a turn, and 8 turns of the inner loop in one of the outer."""
    run = executed(code, Cost(flops=2 * 4 * 64 * 128), 128)
    assert run.products == 4 * 64
    assert run.kinds["load"] == 64 + 2 * 8 and run.stalls == 64 + 8


def test_what_bounds_a_dispatch(code: MachineCode) -> None:
    """20 SIMDs of 32 lanes at 1 GHz; waves of 64 lanes."""
    small = predict(code, GPU, 1, Cost(bytes_read=40 * 64, flops=64))
    assert small.bound == "latency" and small.latency == pytest.approx(1 + 1 + 1)
    assert small.total == small.busy + 2
    cached = predict(code, GPU, 1, Cost(bytes_read=20 * 64, flops=64))  # half of the loads find a cache
    assert cached.latency == pytest.approx(3 * (0.5 * 1 + 0.5 * 0.2))
    many = predict(code, GPU, 10_000, Cost(bytes_read=10**9, flops=64 * 8 * 10_000))
    assert many.bound == "memory" and many.memory == pytest.approx(10_000)
    # 3 fma, 1 other in each of 1,000 turns, at two clocks each: 500 waves on each SIMD.
    hot = predict(code, GPU, 10_000, Cost(flops=2 * 4 * 1000 * 64 * 10_000))
    assert hot.arithmetic == pytest.approx(500 * 2 * (4 * 1000 + 125 + 4) / 1000, rel=1e-3)
    assert predict(code, GPU, 0, Cost()).total == 0


def test_a_small_dispatch_is_bound_by_its_start() -> None:
    bare = read_machine_code("disasm:\nBB0:\n\tv_mov_b32 v0, v1\n\ts_endpgm\n\nVGPRs: 1\nSubgroups per SIMD: 16\n", 64)
    assert predict(bare, GPU, 1, Cost(bytes_read=4)).bound == "dispatch"


def test_targets() -> None:
    assert all(target_gpu(name) is gpu for name, gpu in GPUS.items())
    assert GPUS["amd:navi31"].gflops == pytest.approx(96 * 2.3 * 128)
    with pytest.raises(InputError, match="there is no target 'nvidia'; the targets are amd:navi21, amd:navi31"):
        target_gpu("nvidia")


def test_a_page_shows_every_dispatch_and_its_loop(code: MachineCode) -> None:
    cost, gpu = Cost(bytes_read=10**6, flops=10**6), GPUS["amd:navi31"]
    dispatch = JudgedDispatch("aten.linear.default", "q4<&>gemv", 256, code, cost, predict(code, gpu, 256, cost))
    level = JudgedLevel({"S": 1, "pos": 128}, (dispatch, dispatch))
    page = make_page([KernelReport("model.gguf", gpu, (level,)), KernelReport("model.gguf", gpu, (level,))])
    assert page.count("<h2>Radeon RX 7900 XTX (RDNA 3)</h2>") == 2 and "not measurements" in page
    assert "aten.linear · q4&lt;&amp;&gt;gemv" in page and "q4<&>" not in page
    assert "BB5:\n    buffer_load_b64" in page and "v_rcp_f32" not in page  # the loop, and not what is around it
    assert f"{level.rate:,.0f}" in page and "256 workgroups of 64" in page
    assert "<script" not in page and "http:" not in page.replace("http-equiv", "")


def test_code_without_a_loop_is_shown_whole() -> None:
    straight = read_machine_code("disasm:\nBB0:\n\tv_add_f32_e32 v1, v2, v3\n\ts_endpgm\n", 64)
    assert straight.main_text == "BB0:\n    v_add_f32_e32 v1, v2, v3\n    s_endpgm"
