"""A network with its own loss, as the models of CornerNet have it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class _Loss(nn.Module):
    def forward(self, scores: Tensor, targets: list[Tensor]) -> Tensor:
        return functional.cross_entropy(scores, targets[0]).unsqueeze(0)


class model(nn.Module):
    """Tells the bright side of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
        self.loss = _Loss()

    def forward(self, pictures: Tensor) -> Tensor:
        return self.net(pictures)
