"""Makes the programs of tests/conformance/states: a model with two buffers that a call changes, and one without.

    pip install torch==2.13.0 executorch==1.5.1
    python tests/conformance/make_states.py

`aliased.pte` writes them in place, and `aliased.npz` has what the eager model gives in four calls; `apart.pte` is what
the exporter makes by default: the new values are outputs of the delegate that the program has no place for.
`unread.pte` passes a tensor to a delegate whose graph does not have it: the op that read it was removed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

FOLDER = Path(__file__).parent / "states"


class Convolutions(torch.nn.Module):
    """Two short convolutions over rows, each with a state of the last two."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(1, 2, 8))
        self.register_buffer("other", torch.ones(1, 2, 8))
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = torch.cat([self.state, self.linear(x)], 1)
        self.state.copy_(w[:, -2:])
        v = torch.cat([self.other, torch.tanh(w[:, 2:])], 1)
        self.other.copy_(v[:, -2:])
        return w[:, :-2] + w[:, 1:-1] * 0.5 + v[:, 2:]


class Unread(torch.nn.Module):
    """The sum over rows of `nonzero` adds nothing to what a delegate is passed, but the rows are passed as well."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x > 0).sum(0).float() + x.sum()


def main() -> None:
    torch.manual_seed(0)
    config = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
    exported = torch.export.export(Unread(), (torch.randn(4, 5),))
    edge = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner({})], compile_config=config)
    (FOLDER / "unread.pte").write_bytes(edge.to_executorch().buffer)
    for name in ("aliased", "apart"):
        model = Convolutions().eval()
        exported = torch.export.export(model, (torch.randn(1, 4, 8),))
        partitioner = VulkanPartitioner({"alias_buffer_mutations": True} if name == "aliased" else {})
        program = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch()
        (FOLDER / f"{name}.pte").write_bytes(program.buffer)
        if name == "aliased":
            steps = {}
            for n in range(4):
                x = torch.randn(1, 4, 8)
                steps[f"{n}.in0"], steps[f"{n}.out0"] = x.numpy(), model(x).detach().numpy()
            np.savez(FOLDER / "aliased.npz", **steps)


if __name__ == "__main__":
    main()
