"""Kernels prove themselves: before a plan runs for the first time on an adapter, each of its ops is checked on a small
known answer. A route that answers wrong is left out for the next one.

The verdicts are kept; see `verdicts.py`. HIGHTIDE_PROVE=0 trusts every kernel.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hightide.errors import DeviceError, HightideError
from hightide.gpu.device import Device
from hightide.gpu.pipelines import compiling, pipelines
from hightide.graph.graph import OpCall
from hightide.ops.choices import CHOICES, Choice
from hightide.planning.planner import Plan, Planner
from hightide.runtime.debug_checks import debugging
from hightide.runtime.device_routes import forcing
from hightide.runtime.need import Need, needs_of, needs_of_all
from hightide.runtime.small_graph import check_of
from hightide.runtime.verdicts import Verdicts, Wrong


def proving() -> bool:
    """Whether kernels are checked before they are used; with HIGHTIDE_DEBUG every run is, as it is."""
    return os.environ.get("HIGHTIDE_PROVE", "1") != "0" and not debugging()


@dataclass(frozen=True)
class LeftOut:
    """A route that is not taken, because it answers wrong."""

    choice: str
    option: str


class Prover:
    """Proves the plans of one session, and knows the routes that it left out."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.verdicts = Verdicts(device.adapter)
        self._left_out: set[LeftOut] = set()

    def trusted(
        self, planner: Planner, plan: Callable[[Planner], Sequence[Plan]], used: Callable[[Sequence[Plan]], list[Plan]]
    ) -> Planner:
        """A planner none of whose plans has a kernel that is known to be wrong; those `used` are checked first.

        `plan` makes the plans that matter with any planner. DeviceError where an op has no right route.
        """
        while True:
            plans = plan(planner)
            self.prove(planner, used(plans))
            wrong = self.verdicts.of(needs_of_all(plans))
            if not wrong:
                return planner
            planner = self._other_route(planner, plan, *wrong[0])

    def prove(self, planner: Planner, plans: Iterable[Plan]) -> None:
        """Check what these plans need and what has no verdict yet; keep the verdicts."""
        unknown: dict[Need, tuple[Plan, OpCall]] = {}
        for plan in plans:
            for need, call in needs_of(plan).items():
                if not self.verdicts.known(need):
                    unknown.setdefault(need, (plan, call))
        if not unknown:
            return
        pipelines(self.device).start(shader for need in unknown for shader in need.shaders)
        with _progress(len(unknown)) as tell:
            for done, (need, (plan, call)) in enumerate(unknown.items(), 1):
                self.verdicts.note(need, self._problem(need, planner, plan, call))
                tell(done)
        self.verdicts.save()

    def _problem(self, need: Need, planner: Planner, plan: Plan, call: OpCall) -> str | None:
        """What is wrong with a need's kernels; "" if nothing is, None if no small graph can tell."""
        check = check_of(need, planner, plan, call)
        if check is None:
            return None
        try:
            return check.problem(self.device)
        except DeviceError as error:
            if "does not compile" not in str(error):  # a lost device says nothing about its kernels
                raise
            return str(error).splitlines()[0]
        except HightideError:
            return None

    def _other_route(
        self, planner: Planner, plan: Callable[[Planner], Sequence[Plan]], need: Need, wrong: Wrong
    ) -> Planner:
        adapter = self.device.adapter
        what = f"{adapter.name} ({adapter.driver}) gives wrong results in kernel {need.routes} of {need.op}"
        having = _having(need, plan(planner))
        for choice, option in self._options(planner):
            other = forcing(planner, {choice.name: option})
            try:
                if _having(need, plan(other)) >= having:  # one kernel may serve two choices: each leaves it out
                    continue
            except HightideError:
                continue
            taken = planner.choices(choice)
            self._left_out.add(LeftOut(choice.name, taken))
            warnings.warn(
                f"{what}: {wrong.problem}; the route {choice.name}={taken} is left out, {option} is used instead",
                stacklevel=2,
            )
            return other
        raise DeviceError(
            f"{what}: {wrong.problem}; no other route is right, so this adapter cannot be trusted for {need.op}:"
            " use device='cpu', or another driver"
        )

    def _options(self, planner: Planner) -> Iterator[tuple[Choice, str]]:
        """The options that are not taken and were not left out, the default of a choice first."""
        traits = planner.choices.traits
        for choice in CHOICES.values():
            default = choice.default(traits)
            for option in dict.fromkeys((default, *choice.options)):
                if (
                    not choice.by_caller
                    and option != planner.choices(choice)
                    and (choice.exact or option == default)
                    and choice.possible(traits, option)
                    and LeftOut(choice.name, option) not in self._left_out
                ):
                    yield choice, option


def _having(need: Need, plans: Iterable[Plan]) -> int:
    return sum(need in needs_of(plan) for plan in plans)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Tells who waits for kernels how many are checked; the small sessions of the checks tell nothing."""
    tell = compiling.get()
    token = compiling.set(None)
    try:
        yield lambda done: tell(done, total) if tell is not None else None
    finally:
        compiling.reset(token)
