"""What profiles say, made up: sums, limits, tables of any width, traces and pages. No adapter."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from traces import check_trace

from hightide.gpu.limits import Limits
from hightide.gpu.queries import Clock
from hightide.gpu.timestamps import Span, Timing
from hightide.ops.cost import Cost
from hightide.tools.opened_file import default_levels
from hightide.tools.profile import Dispatched, LevelProfile, Profile, TimedRun
from hightide.tools.profile.profile_data import UntimedRun
from hightide.tools.profile.profile_tables import as_text, duration, finding_text, totals_text

LIMITS = Limits(read_gb_s=10.0, copy_gb_s=12.0, fma_gflop_s=100.0, dispatch_us=10.0, submit_us=50.0, readback_us=200.0)
MS = 1_000_000  # ns


def dispatched(op: str, route: str, seconds: float, nbytes: int, flops: int, index: int = 0) -> Dispatched:
    family = op.split(".")[1]
    cost = Cost(nbytes, 0, flops)
    return Dispatched("forward", index, op, family, route, ((1, 4),), (8, 1), cost, seconds, seconds, seconds)


def made_up(subject: str = "model.pte", level: dict[str, int] | None = None) -> Profile:
    """A step of 10 ms: two products of 4 ms, of 20 MB (memory) and of 0.2 GFLOP, and a tiny norm of 1 ms."""
    dispatches = (
        dispatched("aten.linear.default", "gemv", 4e-3, 20_000_000, 1_000, index=3),
        dispatched("aten.linear.default", "gemm", 4e-3, 1_000, 200_000_000, index=5),
        dispatched("et_vk.norm.default", "rms_norm", 1e-3, 1_000, 1_000, index=7),
    )
    runs = []
    for n in range(3):
        begin = 1000 * MS + 30 * n * MS
        spans = (
            Span("check", begin, begin + MS // 10),
            Span("plan", begin + MS // 10, begin + MS // 5),
            Span("write", begin + MS // 5, begin + MS // 4),
            Span("encode", begin + MS // 4, begin + MS // 3),
            Span("submit", begin + MS // 3, begin + MS // 2),
            Span("wait", begin + MS // 2, begin + 10 * MS),
            Span("read", begin + 10 * MS, begin + 11 * MS),
        )
        at, times = begin + MS // 2, []
        for d in dispatches:
            times.append((at, at + int(d.seconds * 1e9)))
            at = times[-1][1]
        runs.append(TimedRun(begin, begin + 11 * MS, 0.02, spans, tuple(times), 1000.0))
    untimed = tuple(
        UntimedRun(1000 * MS + 30 * n * MS + 15 * MS, 1000 * MS + 30 * n * MS + 25 * MS, 0.018) for n in range(3)
    )
    at = {"S": 1, "pos": 40} if level is None else level
    return Profile(
        subject,
        "an adapter",
        "a driver",
        Timing.INSIDE,
        LIMITS,
        (LevelProfile(at, dispatches, tuple(runs), untimed, 0.5, LIMITS, True),),
        ("forward",),
    )


def test_the_limit_that_binds_is_the_one_that_takes_longest() -> None:
    assert LIMITS.binding(20_000_000, 1000) == "memory" and LIMITS.seconds(20_000_000, 1000) == pytest.approx(2e-3)
    assert LIMITS.binding(1000, 200_000_000) == "arithmetic" and LIMITS.seconds(1000, 200_000_000) == pytest.approx(
        2e-3
    )
    assert LIMITS.binding(1000, 1000) == "dispatch" and LIMITS.seconds(1000, 1000) == pytest.approx(10e-6)


def test_groups_sum_what_is_in_them() -> None:
    (level,) = made_up().levels
    linear, norm = level.by_op()
    assert (linear.name, linear.calls, linear.seconds) == ("aten.linear.default", 2, pytest.approx(8e-3))
    assert linear.of_limit == pytest.approx(0.5)  # 2 of 4 ms, twice
    assert linear.gb_s == pytest.approx(20_001_000 / 8e-3 / 1e9)
    assert norm.binding == "dispatch" and norm.of_limit == pytest.approx(0.01)
    assert {(g.route, g.binding) for g in level.by_route()[:2]} == {("gemv", "memory"), ("gemm", "arithmetic")}
    assert level.total.calls == 3 and level.total.seconds == pytest.approx(level.gpu_seconds)
    assert level.total.cost.bytes == sum(g.cost.bytes for g in level.by_route())


def test_the_whole_step_is_told_beside_the_sum_of_its_dispatches() -> None:
    text = totals_text(made_up().levels[0])
    assert text.startswith("3 dispatches take 9 ms in all; the whole step takes 10 ms when nothing is timed and 11 ms")
    assert "(+10.0%)" in text and "CPU time 18 ms and 20 ms (+11.1%)" in text and "first step of 500 ms" in text


def test_what_to_look_at_first_is_said() -> None:
    text = finding_text(made_up().levels[0])
    assert text == "44% of the time is aten.linear by gemv, at 50% of the adapter's read bandwidth"


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 100, 160])
def test_tables_fit_the_window_and_keep_their_numbers(width: int) -> None:
    text = as_text(made_up(), width)
    assert max(map(len, text.splitlines())) <= width
    (row,) = [line for line in text.splitlines() if line.startswith("  gemv")]
    assert "4.00" in row and "44.4%" in row
    assert ("50% memory" in row) == (width >= 60) and ("2.50" not in row)
    assert ("5.00" in row) == (width >= 76)  # GB/s


def test_no_dispatches_at_all_is_said_too() -> None:
    level = made_up().levels[0]
    empty = LevelProfile(
        {},
        (),
        tuple(TimedRun(r.begin, r.end, 0.0, r.spans, (), 0.0) for r in level.runs),
        level.untimed,
        0.1,
        LIMITS,
        False,
    )
    text = as_text(Profile("x", "a", "d", Timing.PASSES, LIMITS, (empty,)))
    assert "fixed shapes: no dispatches" in text and "CPU time" not in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (1e-3, "1 ms"), (0.9996e-3, "1000 µs"), (3.2e-6, "3.2 µs"), (5e-9, "5 ns")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("symbols", "levels"),
    [
        ({"S": 512, "pos": 2047}, [{"S": 128, "pos": 0}, {"S": 1, "pos": 128}]),
        ({"S": 47, "pos": 95, "keep": 16}, [{"S": 47, "pos": 0}, {"S": 1, "pos": 47}]),
        ({"S": 63, "pos": 20}, [{"S": 20, "pos": 0}, {"S": 1, "pos": 20}]),
        ({"S": 33, "T": 4}, [{}, {"S": 1}]),
        ({"pos": 19}, [{}]),
        ({}, [{}]),
    ],
)
def test_levels_that_nobody_named(symbols: dict[str, int], levels: list[dict[str, int]]) -> None:
    assert default_levels(symbols) == levels


def test_clocks_keep_nanoseconds_of_large_ticks() -> None:
    ticks = np.array([2**60, 2**60 + 1, 2**60 + 1000], np.uint64)
    host = Clock(2.0, -float(2**61), 0.0).host(ticks)
    assert (host - host[0]).tolist() == [0, 2, 2000]


def test_a_trace_has_both_tracks_on_one_clock() -> None:
    trace = made_up().trace()
    check_trace(trace)
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    gpu = [e for e in events if e["pid"] == 2]
    assert len(gpu) == 3 * 3 and len([e for e in events if e["cat"] == "step"]) == 6
    first = gpu[0]
    assert (first["name"], first["dur"], first["args"]["op"]) == ("gemv", 4000.0, "aten.linear")
    assert first["args"]["dims"] == "[1, 4]" and first["args"]["grid"] == "8x1"
    submits = [e for e in events if e["name"] == "submit"]
    assert first["ts"] >= submits[0]["ts"]


class Elements(HTMLParser):
    """Every element's name and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_page_is_whole_and_needs_no_network() -> None:
    page = made_up().html()
    elements = Elements(page).found
    assert not [tag for tag, attributes in elements if {"src", "href"} & set(attributes)]
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)|@import|fetch\(|XMLHttpRequest", page)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    level = json.loads(data)["levels"][0]
    assert level["run"]["length"] == 11 * MS and len(level["run"]["dispatches"]) == len(level["dispatches"]) == 3
    assert level["finding"] == finding_text(made_up().levels[0])


def test_names_cannot_break_out_of_the_page() -> None:
    hostile = made_up("</script><img src=x onerror=alert(1)>")
    for text in (hostile.html(), hostile._repr_html_()):
        assert "<img" not in text
    json.loads(re.findall(r'id="data">(.*?)</script>', hostile.html(), re.S)[0])


def test_a_notebook_gets_tables() -> None:
    text = made_up()._repr_html_()
    assert text.count("<table>") == 1 and text.count("<tr>") == 4 and "<script" not in text
    assert "aten.linear" in repr(made_up())


def test_json_has_all_of_it() -> None:
    found = json.loads(json.dumps(made_up().as_json()))
    (level,) = found["levels"]
    assert level["at"] == {"S": 1, "pos": 40} and level["runs"] == 3
    assert sum(op["share"] for op in level["ops"]) == pytest.approx(1)
    assert sum(d["seconds"] for d in level["dispatches"]) == pytest.approx(level["gpu_seconds"])
    assert set(level["host_seconds"]) == {"check", "plan", "write", "encode", "submit", "wait", "read"}
