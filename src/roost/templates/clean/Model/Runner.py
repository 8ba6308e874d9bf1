"""The model: what is trained, by what loss, and how it is measured."""

from collections.abc import Mapping

from torch import Tensor, nn

import roost


class Runner(roost.Runner):
    """A torch.nn.Module. A batch is what your Dataset's samples become when they are stacked."""

    def build(self) -> None:
        """Called once, seeded; every module you assign here is trained, saved and moved to the device."""
        self.net = nn.Linear(self.args["model"]["features"], 1)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The number to make smaller. In a mapping with "loss", the other values become train/<name>."""
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(1), y)

    def evaluate(self, batch: tuple[Tensor, Tensor]) -> Mapping[str, Tensor]:
        """One value per sample, without gradients; their means are recorded as valid/<name>."""
        x, y = batch
        error = self.net(x).squeeze(1) - y
        return {"loss": error.square(), "absolute_error": error.abs()}
