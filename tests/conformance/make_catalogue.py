"""Packs the smallest case of each op of ExecuTorch's op catalogue into `catalogue.zip`, for every clone to run.

python tests/conformance/make_catalogue.py CATALOGUE
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("catalogue.zip")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files give the same bytes


def files_of(case: dict[str, Any]) -> list[str]:
    return [case["pte"], *(spec["path"] for spec in case["inputs"]), case["golden"]["path"]]


def smallest(catalogue: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One case of each op, in the catalogue's order."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    for case in cases:
        size = sum((catalogue / name).stat().st_size for name in files_of(case))
        if case["op"] not in found or size < found[case["op"]][0]:
            found[case["op"]] = size, case
    return [case for _, case in found.values()]


def main() -> None:
    catalogue = Path(sys.argv[1])
    cases = smallest(catalogue, json.loads((catalogue / "manifest.json").read_text()))
    with zipfile.ZipFile(TARGET, "w") as packed:
        for name in sorted({name for case in cases for name in files_of(case)}):
            entry = zipfile.ZipInfo(name, EPOCH)
            packed.writestr(entry, (catalogue / name).read_bytes(), zipfile.ZIP_DEFLATED, 9)
        manifest = zipfile.ZipInfo("manifest.json", EPOCH)
        packed.writestr(manifest, json.dumps(cases, indent=1), zipfile.ZIP_DEFLATED, 9)
    print(f"{len(cases)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
