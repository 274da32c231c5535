"""Chromium with WebGPU, and calls of an exported folder in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_host import Host, hosting

BLANK = "<!doctype html><title>hightide</title><link rel=icon href=data:,>"
LOAD = """async ([kind, options]) => {
    const engine = await import("./hightide.js");
    const began = performance.now();
    window.engine?.close();
    const stages = new Set();
    window.engine = await engine[kind]("./", { ...options, onProgress: ({ stage }) => stages.add(stage) });
    return { ...window.engine.about, stages: [...stages], milliseconds: performance.now() - began };
}"""
FORWARD = """async (inputs) => {
    const outputs = await window.engine.forward(...inputs);
    return outputs.map(({ data, dims }) => ({ data: Array.from(data), dims }));
}"""
GENERATE = """async ([prompt, options, stopAfter, loseAfter]) => {
    const ids = [];
    let text = "";
    for await (const piece of window.engine.generate(prompt, options)) {
        text += piece.text;
        if (piece.token >= 0) ids.push(piece.token);
        if (ids.length === stopAfter) break;
        if (ids.length === loseAfter && piece.token >= 0) window.engine.engine.call("loseDevice", {});
    }
    return { ids, text, ...window.engine.last };
}"""
LOSE = b"""const calls = {
  loseDevice: async () => opened.runtime.gpu.device.destroy(),"""


HALVES = ["subgroups of 8 and halves", "halves"]  # plans with 16-bit floats that lavapipe can run


class Engine:
    """An export, opened in a page of its own: a new context has an empty disk."""

    def __init__(self, context: Any, host: Host) -> None:
        self.host = host
        self.page = context.new_page()
        self.page.set_default_timeout(300_000)
        self.page.goto(f"{host.url}blank.html")
        if not self.page.evaluate("async () => !!(navigator.gpu && await navigator.gpu.requestAdapter())"):
            pytest.skip("this Chromium has no WebGPU adapter")

    def load(self, **options: Any) -> dict[str, Any]:
        about: dict[str, Any] = self.page.evaluate(LOAD, ["load", options])
        return about

    def load_program(self, **options: Any) -> dict[str, Any]:
        about: dict[str, Any] = self.page.evaluate(LOAD, ["loadProgram", options])
        return about

    def forward(self, inputs: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs of the types of `like`."""
        given = [{"data": array.reshape(-1).tolist(), "dims": list(array.shape)} for array in inputs]
        got = self.page.evaluate(FORWARD, given)
        return [np.array(one["data"], w.dtype).reshape(one["dims"]) for one, w in zip(got, like, strict=True)]

    def generate(
        self, prompt: Any, options: Mapping[str, Any], stop_after: int = -1, lose_after: int = -1
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self.page.evaluate(GENERATE, [prompt, dict(options), stop_after, lose_after])
        return answer

    def lose_device(self) -> None:
        self.page.evaluate('() => window.engine.engine.call("loseDevice", {}).result')

    def encode(self, prompt: Any) -> list[int]:
        ids: list[int] = self.page.evaluate("(prompt) => window.engine.encode(prompt)", prompt)
        return ids


@contextmanager
def engine_of(browser: Any, folder: Path) -> Iterator[Engine]:
    (folder / "blank.html").write_text(BLANK)
    context = browser.new_context()
    try:
        with hosting(folder) as host:
            host.changes["worker.js"] = lambda data: data.replace(b"const calls = {", LOSE)
            yield Engine(context, host)
    finally:
        context.close()
