"""Every kernel is standard WGSL: Chromium's compiler takes it and makes a pipeline of it, as wgpu's does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_plans import CASES, plans
from web_engine import engine_of

from hightide.ops.choices import CHOICES, Choices
from hightide.runtime.case_graph import CaseGraph
from hightide.traits import Traits
from hightide.web.session_tables import standard_text

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("webgpu")]
COMPILE = """async (texts) => {
    const adapter = await navigator.gpu.requestAdapter();
    const wanted = ["maxStorageBuffersPerShaderStage", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX",
        "maxComputeWorkgroupStorageSize"];
    const requiredLimits = Object.fromEntries(wanted.map((name) => [name, adapter.limits[name]]));
    const requiredFeatures = ["subgroups", "shader-f16"].filter((name) => adapter.features.has(name));
    const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
    const invocations = adapter.limits.maxComputeInvocationsPerWorkgroup;
    const problems = [];
    for (const [number, text] of texts.entries()) {
        const module = device.createShaderModule({ code: text });
        const errors = (await module.getCompilationInfo()).messages.filter((message) => message.type === "error");
        if (errors.length) {
            problems.push([number, errors.map((error) => `line ${error.lineNum}: ${error.message}`).join("; ")]);
            continue;
        }
        try {
            await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } });
        } catch (error) {
            problems.push([number, error.message]);
        }
    }
    return { features: requiredFeatures, invocations, problems };
}"""


def traits() -> Iterator[Traits]:
    yield Traits(software=True, subgroups=True, subgroup_size=8)
    yield Traits(software=True)
    yield Traits(subgroups=True, subgroup_size=32)
    yield Traits()


def kernels() -> Mapping[str, str]:
    """The texts of all kernels of all op cases, on adapters of all kinds and by every route, with their names."""
    found: dict[str, str] = {}
    for one in traits():
        routes: list[dict[str, str]] = [{}]
        routes += [
            {choice.name: option}
            for choice in CHOICES.values()
            for option in choice.options
            if choice.possible(one, option) and option != choice.default(one)
        ]
        for forced in routes:
            for case in CASES:
                for plan in plans(CaseGraph(case, np.random.default_rng(7)), Choices(one, forced)):
                    for step in plan.steps:
                        shader = step.dispatch.kernel.shader(step.dispatch.halves)
                        found.setdefault(shader.text, shader.name)
    return found


def test_chromium_compiles_every_kernel(browser: Any, tmp_path: Path) -> None:
    found = {standard_text(text): name for text, name in kernels().items()}
    texts = list(found)
    assert len(texts) > 500
    with engine_of(browser, tmp_path) as engine:
        said = engine.page.evaluate(COMPILE, texts)
    assert [(found[texts[n]], text) for n, text in said["problems"]] == []
    assert "subgroups" in said["features"]
