"""The form of a trace."""

from __future__ import annotations

import json
from typing import Any


def check_trace(trace: dict[str, Any]) -> None:
    """The form that trace viewers take, and that what is drawn inside something lies inside it."""
    assert set(trace) >= {"traceEvents"} and json.loads(json.dumps(trace)) == trace
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    named = {(e["pid"], e["name"]) for e in trace["traceEvents"] if e["ph"] == "M"}
    assert {event["ph"] for event in trace["traceEvents"]} == {"X", "M"}
    for event in complete:
        assert isinstance(event["name"], str) and event["ts"] >= 0 and event["dur"] >= 0
        assert (event["pid"], "process_name") in named and isinstance(event["tid"], int)
    steps = [e for e in complete if e["cat"] == "step"]
    for event in complete:
        if event["cat"] != "step":
            slack = 0.002 if event["cat"] == "host" else 1000  # µs; a GPU's clock is compared with the host's
            inside = [
                s
                for s in steps
                if s["ts"] - slack <= event["ts"] and event["ts"] + event["dur"] <= s["ts"] + s["dur"] + slack
            ]
            assert inside, event
