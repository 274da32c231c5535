"""`hightide tune`: measure which routes are fastest on an adapter, once."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.text import Text

from hightide.cli.options import Device, Json, note
from hightide.cli.progress import bar
from hightide.cli.window import window
from hightide.errors import DeviceError
from hightide.gpu.device import find_adapter, open_device
from hightide.runtime.build import named_device
from hightide.tools.tune import tuner
from hightide.tools.word_tables import WordTable, show

PLAIN_WIDTH = 80  # of a pipe


def tune(
    device: Device = None,
    show: Annotated[bool, typer.Option("--show", help="Show the last measurements; measure nothing.")] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget the measurements and go back to the defaults.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure which kernel routes are fastest on an adapter, and keep them.

    They hold for this adapter, driver and version of hightide.
    """
    selector = named_device(device)
    if selector == "cpu":
        raise DeviceError("the NumPy references have no routes to choose from; name an adapter")
    adapter = find_adapter(selector)
    if reset:
        there = tuner.forget(adapter)
        note(f"{adapter.name}: {'back to the defaults' if there else 'there is nothing to forget'}")
        return
    if show:
        verdicts = tuner.known(adapter)
        if not verdicts:
            raise DeviceError(f"nothing has been measured on {adapter.name} with this driver; run `hightide tune`")
    else:
        opened = open_device(adapter)
        with bar(f"measuring on {adapter.name}", "runs") as tell:
            verdicts = tuner.tune(opened, progress=tell)
        tuner.keep(opened, verdicts)
    if as_json:
        found = [dataclasses.asdict(verdict) for verdict in verdicts]
        print(json.dumps({"adapter": adapter.name, "driver": adapter.driver, "choices": found}, indent=2))
    else:
        _show(adapter.name, verdicts)


def _show(name: str, verdicts: list[tuner.Verdict]) -> None:
    table = WordTable("choice", "route", "", "time of each, as a share of the default's", head_style="bold")
    for verdict in verdicts:
        others = ", ".join(
            f"{option} {ratio:.2f}" for option, ratio in sorted(verdict.ratios.items(), key=lambda r: r[1])
        )
        faster = verdict.chosen != verdict.default
        gain = Text(f"{verdict.gain:.2f} × faster", "green") if faster else Text("the default")
        table.add_row(verdict.choice, verdict.chosen, gain, others or "the same dispatches on this adapter")
    show(window(PLAIN_WIDTH), Text(name, "bold"), table)
