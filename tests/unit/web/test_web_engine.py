"""What of the page's engine needs no GPU: its size, its package, its types, its random numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from running_node import node

from hightide.folders import cache_folder
from hightide.web.site_files import ENGINE

SEEDS = [0, 1, 7, 2**32, 12345678901234567890, 2**200 + 5]
MOST_BYTES = 60_000
TYPESCRIPT = ("typescript@5.9.3", "@webgpu/types@0.1.74")


def test_random_numbers(tmp_path: Path) -> None:
    script = """
    import fs from "fs";
    import { Random } from "ENGINE/random.js";
    const seeds = JSON.parse(fs.readFileSync(process.argv[2]));
    const draw = (random) => [1, 2, 3, 4].map(() => random.uniform());
    console.log(JSON.stringify(seeds.map((seed) => draw(new Random(BigInt(seed))))));
    """
    expected = [[rng.uniform() for _ in range(4)] for rng in map(np.random.default_rng, SEEDS)]
    assert node(script, [str(seed) for seed in SEEDS], tmp_path) == expected


def test_the_engine_is_small() -> None:
    assert sum(path.stat().st_size for path in ENGINE.glob("*.js")) < MOST_BYTES


def test_a_package_for_npm(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("no npm")
    done = subprocess.run(
        ["npm", "pack", "--json", "--pack-destination", tmp_path, ENGINE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    packed = {file["path"] for file in json.loads(done.stdout)[0]["files"]}
    names = {path.name for path in ENGINE.glob("*.js")}
    assert {*names, "hightide.d.ts", "package.json", "vendor/jinja.mjs", "vendor/tokenizers.mjs"} <= packed


@pytest.mark.slow
def test_types() -> None:
    """tsc finds nothing; it is installed into the cache folder."""
    npm, tools = shutil.which("npm"), cache_folder() / "typescript"
    if npm is None:
        pytest.skip("no npm")
    if not (tools / "node_modules" / "typescript").is_dir():
        tools.mkdir(parents=True, exist_ok=True)
        (tools / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--ignore-scripts", "--no-fund", *TYPESCRIPT]
        if subprocess.run(command, cwd=tools, capture_output=True).returncode:
            pytest.skip("TypeScript could not be installed")
    modules = tools / "node_modules"
    types = ["--typeRoots", modules, "--types", "@webgpu/types"]
    done = subprocess.run([modules / ".bin" / "tsc", "-p", ENGINE, *types], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
