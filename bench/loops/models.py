"""Models for the benchmarks of a step: from 32 numbers to 10 classes."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class Gates(nn.Module):
    """Long chains of pointwise operations between two small matrix products: where a compiler helps."""

    def __init__(self, width: int = 256, depth: int = 4) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, width), nn.Linear(width, 10)
        self.scales = nn.ParameterList(torch.ones(width) for _ in range(depth))
        self.shifts = nn.ParameterList(torch.zeros(width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for scale, shift in zip(self.scales, self.shifts, strict=True):
            gate = scale * x + shift
            x = x + gate.clamp(-1, 1) * (1 - 0.1 * gate * gate)
        return self.last(x)


class Attention(nn.Module):
    """A transformer without dropout over eight tokens of four numbers, dominated by matrix products."""

    def __init__(self, width: int = 32, depth: int = 1) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 10)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x.unflatten(-1, (8, 4)))
        for layer in self.layers:
            x = layer(x)
        return self.last(x.mean(1))


class Wide(nn.Module):
    """Three layers of matrix products that keep a GPU busy, where lower precision helps."""

    def __init__(self, width: int = 4096) -> None:
        super().__init__()
        widths = [32, width, width, width]
        hidden = [nn.Sequential(nn.Linear(a, b), nn.GELU()) for a, b in itertools.pairwise(widths)]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)
