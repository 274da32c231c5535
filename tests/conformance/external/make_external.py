"""Makes the small programs beside it: constants in a segment, in a `.ptd` file, and inline as in old files.

Needs `torch==2.13.0 executorch==1.5.1`. Run: `python make_external.py FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._flatbuffer_program import _program_to_flatbuffer
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch.export import export


class Counting(torch.nn.Module):
    """A linear layer with known weights, and a counter whose start matters."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.linear.weight.data = torch.arange(6.0).reshape(2, 3)
        self.linear.bias.data = torch.tensor([10.0, 20.0])
        self.register_buffer("count", torch.full((2,), 7.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1.0)
        return self.linear(x) + self.count


class Halves(torch.nn.Module):
    """Lists of values: the pieces of a split, and of a concatenation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.split(2, dim=-1)
        return torch.cat([right, left], dim=-1)


def main(folder: Path) -> None:
    methods = {
        "forward": export(Counting(), (torch.ones(1, 3),)),
        "swap": export(Halves(), (torch.ones(1, 4),)),
    }
    for name, external in (("segment", False), ("external", True)):
        config = ExecutorchBackendConfig(external_constants=external, passes=[InitializedMutableBufferPass(["count"])])
        program = to_edge(methods).to_executorch(config)
        program.save(str(folder / f"{name}.pte"))
        if external:
            program.write_tensor_data_to_file(str(folder))
            (folder / "_default_external_constant.ptd").rename(folder / "external.ptd")

    # Old exporters wrote constants into the FlatBuffer, and no extended header; they had no initial state.
    plain = to_edge({"forward": export(Counting().linear, (torch.ones(1, 3),))}).to_executorch()
    inline = deserialize_pte_binary(bytes(plain.buffer)).program
    (folder / "inline.pte").write_bytes(bytes(_program_to_flatbuffer(inline).data))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
