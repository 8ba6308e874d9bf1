"""The network: a small CNN, made for pictures of 8x8 pixels."""

from __future__ import annotations

from torch import Tensor, nn


def block(channels_in: int, channels_out: int) -> nn.Sequential:
    """A 3x3 convolution that keeps the size of the picture."""
    convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels_out), nn.ReLU())


class Net(nn.Sequential):
    """Pictures (B, 1, 8, 8) -> logits (B, classes). With 32 channels: 58,474 parameters.

    Args:
        classes: Number of classes.
        channels: Channels of the first convolution; the others have twice as many.
        dropout: The share of features that dropout sets to zero in training.
    """

    def __init__(self, *, classes: int, channels: int, dropout: float) -> None:
        super().__init__(
            block(1, channels),
            block(channels, 2 * channels),
            nn.MaxPool2d(2),
            block(2 * channels, 2 * channels),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * channels * 2 * 2, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits of a batch."""
        return super().forward(images)
