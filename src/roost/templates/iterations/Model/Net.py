"""The network: a small residual CNN, made for pictures of 8x8 pixels."""

from __future__ import annotations

from torch import Tensor, nn


class Residual(nn.Module):
    """Two 3x3 convolutions with a skip connection."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels_out) for _ in range(3))
        self.skip = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(inner)) + self.norms[2](self.skip(x))).relu()


class Net(nn.Module):
    """Pictures (B, 1, 8, 8) -> logits (B, classes). With 32 channels: 68,106 parameters.

    Args:
        classes: Number of classes.
        channels: Channels of the first block; the second has twice as many.
    """

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(Residual(1, channels, 1), Residual(channels, 2 * channels, 2))
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone(images).amax((2, 3)))
