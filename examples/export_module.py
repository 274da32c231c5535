"""Export a torch module as a program that takes any length up to 64, and compare it with eager at several of them.

The same from a shell: hightide export examples/export_module.py:make_model --dynamic "x:1=S<=64" tagger.pte
"""

import torch
from torch import nn

import hightide


class Tagger(nn.Module):
    """Scores of 5 tags for each of S rows: a convolution over neighbours, attention, a linear layer."""

    def __init__(self):
        super().__init__()
        self.near = nn.Conv1d(24, 24, 3, padding=1)
        self.norm = nn.LayerNorm(24)
        self.qkv = nn.Linear(24, 72)
        self.tags = nn.Linear(24, 5)

    def forward(self, x):  # [1, S, 24]
        x = self.norm(x + self.near(x.transpose(1, 2)).transpose(1, 2))
        q, k, v = self.qkv(x).split(24, dim=-1)
        x = x + torch.softmax(q @ k.transpose(1, 2) * 24**-0.5, dim=-1) @ v
        return torch.log_softmax(self.tags(x), dim=-1)


def make_model():
    torch.manual_seed(0)
    return Tagger(), (torch.randn(1, 9, 24),)


if __name__ == "__main__":
    module, inputs = make_model()
    report = hightide.export(module, inputs, "x:1=S<=64", "tagger.pte")
    print(report)
    with hightide.load("tagger.pte") as program:
        (scores,) = program.method()(torch.randn(1, 30, 24))
        print(f"tags of 30 rows: {scores.argmax(-1)[0].tolist()}")
