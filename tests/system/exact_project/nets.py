"""Models of every kind that a resume must bring back; each takes pictures (B, 1, 4, 4)."""

from __future__ import annotations

from torch import Tensor, nn


def mlp(features: int = 2) -> nn.Module:
    """With dropout."""
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, features))


def cnn() -> nn.Module:
    """With batch norm, which has buffers, and dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64, 2),
    )


class Transformer(nn.Module):
    """Reads the rows of a picture as four tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x.squeeze(1))).mean(1))


NETS = {"mlp": mlp, "cnn": cnn, "transformer": Transformer}
