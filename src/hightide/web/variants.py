"""The kinds of adapters that a page may find, each with a plan of its own; the fastest that it can run is taken."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.traits import Traits

MAX_BINDING = 128 << 20  # bytes: WebGPU's guarantee, which the other defaults of `Traits` are too


@dataclass(frozen=True)
class Variant:
    name: str
    traits: Traits

    @property
    def needs(self) -> dict[str, object]:
        """What a page must find: features, the fewest lanes of a subgroup, and whether the adapter is a CPU."""
        features = ["subgroups"] * self.traits.subgroups + ["shader-f16"] * self.traits.f16
        return {"features": features, "lanes": self.traits.subgroup_size, "software": self.traits.software}


def variants() -> list[Variant]:
    """The fastest first. Those for CPUs come before those for GPUs: a page on a GPU passes them over."""
    quads = Traits(software=True, subgroups=True, subgroup_size=4)
    made = [Variant("software with subgroups", quads), Variant("software", Traits(software=True))]
    for lanes in (32, 8, 0):
        for f16 in (True, False):
            parts = [f"subgroups of {lanes}"] * bool(lanes) + ["halves"] * f16
            traits = Traits(f16=f16, subgroups=bool(lanes), subgroup_size=lanes)
            made.append(Variant(" and ".join(parts) or "plain", traits))
    return made
