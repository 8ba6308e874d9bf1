"""The network: a small CNN, made for pictures of 28x28 pixels."""

from __future__ import annotations

from torch import Tensor, nn


def block(channels_in: int, channels_out: int) -> nn.Sequential:
    """A 3x3 convolution that keeps the size of the picture; the pooling after it halves the size."""
    convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels_out), nn.ReLU(), nn.MaxPool2d(2))


class Net(nn.Sequential):
    """Pictures (B, 1, 28, 28) -> logits (B, classes). With 16 channels: 29,178 parameters.

    Args:
        classes: Number of classes.
        channels: Channels of the first convolution; the others have twice and four times as many.
        dropout: The share of features that dropout sets to zero in training.
    """

    def __init__(self, *, classes: int, channels: int, dropout: float) -> None:
        super().__init__(
            block(1, channels),
            block(channels, 2 * channels),
            block(2 * channels, 4 * channels),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(4 * channels * 3 * 3, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits of a batch. Pictures are bytes until here, a quarter of the memory of floats."""
        return super().forward(images.float() / 255)
