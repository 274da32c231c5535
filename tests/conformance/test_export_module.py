"""`hightide export model.py:make_model`: torch modules become programs that agree with eager at every size.

Needs the extra `export` (torch and executorch); skipped without it. What needs no torch is in
tests/unit/test_export_texts.py.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hightide as package
from hightide.errors import ExportError, InputError
from hightide.gpu.device import Device
from hightide.pte.program import load
from hightide.tools.export.export_report import ExportReport

MODELS = Path(__file__).parent / "exported_models.py"
HAS_EXPORTER = all(importlib.util.find_spec(name) is not None for name in ("torch", "executorch"))
pytestmark = pytest.mark.skipif(not HAS_EXPORTER, reason="no torch and executorch: pip install 'hightide[export]'")

# name: (what varies, sizes that are checked)
RIGHT: dict[str, tuple[list[str], list[str]]] = {
    "mlp": (["x:0=B<=12"], ["B=12", "B=1", "B=5", "B=6"]),
    "block": (["x:0=B<=3", "x:1=S<=20"], ["B=3, S=20", "B=1, S=1", "B=1, S=7", "B=2, S=10", "B=1, S=20"]),
    "embedder": (["ids:1=S<=17", "weights:1=S"], ["S=17", "S=1", "S=7", "S=9"]),
    "conv_net": (
        ["image:0=B<=4", "image:2=7<=H<=24"],
        ["B=4, H=24", "B=1, H=7", "B=3, H=13", "B=2, H=15", "B=1, H=24"],
    ),
    "cache": ([], ["check 0", "check 1", "check 2"]),
    "slots": ([], ["S=16", "S=1", "S=7", "S=8", "S=1, twice"]),
    "branches": ([], ["check 0", "check 1"]),
    "nonzero": ([], ["as the example"]),
    "upsample": ([], ["H=12", "H=1", "H=5", "H=6"]),
    "pair": ([], ["S=9", "S=1", "S=3", "S=5"]),
}


def made(name: str) -> Any:
    import exported_models
    import torch

    torch.manual_seed(0)
    return getattr(exported_models, name)()


def exported(name: str, dynamic: Any = None, out: Path | None = None, **options: Any) -> ExportReport:
    module, inputs, *rest = made(name)
    more = dict(rest[0]) if rest else {}
    return package.export(module, inputs, dynamic or more.pop("dynamic_shapes", None), out, **more, **options)


@pytest.mark.parametrize("name", RIGHT)
def test_a_module_agrees_with_eager_at_every_size(name: str, tmp_path: Path, device: Device) -> None:
    dynamic, sizes = RIGHT[name]
    report = exported(name, dynamic, tmp_path / "out.pte")
    assert report.passed and report.worst <= 1e-5, str(report)
    assert not sizes or [size.name for size in report.sizes] == sizes
    assert all(size.dispatches > 0 or name in ("branches", "nonzero") for size in report.sizes)
    load(tmp_path / "out.pte", device="cpu").method()


def test_the_report_says_where_ops_run_and_why(device: Device) -> None:
    report = exported("nonzero")
    ops = {op.name: op for op in report.ops}
    assert ops["aten.nonzero.default"].host == 1 and ops["aten.nonzero.default"].why == "no GPU kernel"
    assert report.signature.startswith("(x: float32[4, 5]) -> ") and report.path == ""
    block = exported("block", ["x:1=S<=20"])
    assert not any(op.host for op in block.ops) and block.graphs == 1
    assert any(op.delegated for op in block.ops) and any(op.joined for op in block.ops)
    assert block.signature == "(x: float32[2, S, 24]) -> float32[2, S, 24]"


def test_on_the_references_and_in_halves(device: Device) -> None:
    reference = exported("mlp", "x:0=B<=12", device="cpu")
    assert reference.passed and reference.device != exported("mlp", "x:0=B<=12").device
    halves = exported("mlp", "x:0=B<=12", fp16=True)
    assert halves.passed and halves.tolerance == 2e-2 and halves.worst > 1e-5


def test_a_partitioner_that_fails_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.backends.vulkan.partitioner import vulkan_partitioner

    assert "so ops that ExecuTorch itself cannot resize are delegated too: " in exported("upsample").note

    def fail(*_: Any) -> Any:
        raise AssertionError("no partition today")

    monkeypatch.setattr(vulkan_partitioner.VulkanPartitioner, "partition", fail)
    report = exported("mlp", "x:0=B<=12", device="cpu")
    assert report.passed and not any(op.delegated for op in report.ops)
    assert report.note == "the Vulkan partitioner failed, so nothing is delegated: AssertionError: no partition today"
    with pytest.raises(ExportError, match="stage 'partition' failed in ExecuTorch's Vulkan partitioner: Assert"):
        exported("mlp", "x:0=B<=12", fp16=True)


def test_torchs_own_dynamic_shapes_are_taken(device: Device) -> None:
    from torch.export import Dim

    report = exported("mlp", {"x": {0: Dim("rows", max=9)}}, device="cpu")
    assert [size.name for size in report.sizes] == ["rows=9", "rows=1", "rows=3", "rows=5"] and report.passed
    with pytest.raises(ExportError, match="no largest size") as refused:
        exported("mlp", ({0: Dim.DYNAMIC},))
    assert refused.value.stage == "export"


def test_the_module_itself_stays_as_it_was() -> None:
    import torch

    module, inputs, options = made("cache")
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.train()
    package.export(module, inputs, options["dynamic_shapes"], checks=options["checks"], device="cpu")
    assert module.training and all(torch.equal(before[name], buffer) for name, buffer in module.named_buffers())


REFUSED = [
    ("chooses", None, ExportError, "stage 'export' failed in torch.export: .*[Dd]ata-dependent"),
    (
        "raises",
        None,
        ExportError,
        r"Raises itself fails with the example inputs: ValueError: this model has no weights",
    ),
    ("fixed", "x:0=S<=9", ExportError, "Fixed itself fails|stage 'export' failed in torch.export: "),
    ("in_place", None, ExportError, "forward changes its input x in place, which a program does not"),
    ("conv_net", "image:2=4<=H<=24", ExportError, r"Not all values of H .* satisfy the generated guard .* != 1"),
    ("mlp", "y:0=S<=9", InputError, "there is no input 'y' to vary; the inputs are x"),
    ("mlp", "x:0=S<=2", InputError, "the example input has 3 at x:0"),
]


@pytest.mark.parametrize(("name", "dynamic", "kind", "message"), REFUSED)
def test_what_cannot_be_exported_is_refused_in_one_sentence(
    name: str, dynamic: str | None, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message) as refused:
        exported(name, dynamic, tmp_path / "out.pte", device="cpu")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 900 and not (tmp_path / "out.pte").exists()


def test_inputs_that_no_program_takes_are_refused() -> None:
    import torch

    module = made("mlp")[0]
    for inputs, message in [
        ((3,), "input x is 3; a program takes tensors"),
        ((torch.zeros(3, 16, dtype=torch.bfloat16),), "input x is torch.bfloat16"),
        ([torch.zeros(3, 16)], "inputs must be a tuple of tensors"),
        ((), "cannot be called with these inputs: missing a required argument: 'x'"),
        ({"y": torch.zeros(3, 16)}, "cannot be called with these inputs"),
    ]:
        with pytest.raises(InputError) as refused:
            package.export(module, inputs)
        assert message in str(refused.value)
    with pytest.raises(InputError, match=r"a torch.nn.Module can be exported, not 3"):
        package.export(3, ())
    with pytest.raises(InputError, match="checks must be a list"):
        package.export(module, made("mlp")[1], checks=[])


def test_an_op_that_hightide_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from hightide.ops import REGISTRY

    monkeypatch.delitem(REGISTRY, "aten.linear.default")
    with pytest.raises(ExportError, match=r"stage .run. failed in hightide: .*aten\.linear\.default") as refused:
        exported("mlp")
    assert refused.value.stage == "run"


def test_a_size_that_the_module_refuses_is_said_and_not_counted() -> None:
    report = exported("picky", "x:0=S<=9", device="cpu")
    assert report.passed and report.sizes[1].name == "S=1" and "too few rows" in report.sizes[1].skipped
    assert "S=1: not checked, the module itself fails there: ValueError: too few rows" in str(report)


def test_the_command_prints_the_report(hightide: Any, tmp_path: Path) -> None:
    out = tmp_path / "mlp.pte"
    code, text, _ = hightide("export", f"{MODELS}:mlp", "--dynamic", "x:0=B<=12", out, "--device", "cpu")
    assert code == 0 and "B=12" in text and "aten.linear.default" in text and "passed: 4 sizes checked" in text
    rows = np.zeros((7, 16), np.float32)
    assert load(out, device="cpu").method()(rows)[0].shape == (7, 10)
    code, text, _ = hightide("export", f"{MODELS}:mlp", out, "--device", "cpu", "--json")
    assert code == 0 and json.loads(text)["passed"] and json.loads(text)["path"] == str(out)


def test_the_command_fails_where_a_size_is_wrong(hightide: Any, tmp_path: Path) -> None:
    given = [f"{MODELS}:noisy", "--dynamic", "x:0=S<=9", tmp_path / "out.pte", "--device", "cpu"]
    code, text, _ = hightide("export", *given)
    assert code == 1 and "S=9: out0 is off by" in text and text.rstrip().endswith("FAILED at S=9")
    assert hightide("export", *given, "--tolerance", "2")[0] == 0


def test_the_command_shows_an_error_in_one_line(hightide: Any, tmp_path: Path) -> None:
    code, text, err = hightide("export", f"{MODELS}:raises", tmp_path / "out.pte")
    line = err.splitlines()[-1]
    assert code == 1 and not text and line.startswith("hightide: Raises itself fails") and "exported_models.py" in line
    assert "Traceback" not in err
