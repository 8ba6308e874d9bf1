"""The model, its loss and its metrics."""

from collections.abc import Mapping

from torch import Tensor, nn

import roost


class Runner(roost.Runner):
    """A torch.nn.Module. A batch is the stacked samples of your Dataset."""

    def build(self) -> None:
        """Called once, seeded; every module you assign here is trained, saved and moved to the device."""
        self.net = nn.Linear(self.args["model"]["features"], 1)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Returns the loss, or a mapping with "loss", whose other values are recorded as train/<name>."""
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(1), y)

    def evaluate(self, batch: tuple[Tensor, Tensor]) -> Mapping[str, Tensor]:
        """Returns one value per sample; runs without gradients. The means are recorded as valid/<name>."""
        x, y = batch
        error = self.net(x).squeeze(1) - y
        return {"loss": error.square(), "absolute_error": error.abs()}
