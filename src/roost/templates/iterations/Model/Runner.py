"""The model that is trained: network, loss and metrics."""

from __future__ import annotations

from collections.abc import Mapping

from Model.Net import Net
from torch import Tensor
from torch.nn import functional

import roost


class Runner(roost.Runner):
    """Classifies digits. A batch is that of the sampling function: {"xs": [images], "ys": [labels]}."""

    def build(self) -> None:
        """Called once, seeded; afterwards roost moves everything to the device."""
        self.net = Net(classes=self.info["classes"], **self.args["model"])

    def loss(self, batch: Mapping[str, list[Tensor]]) -> Mapping[str, Tensor]:
        """Called at each step; "accuracy" is recorded as train/accuracy."""
        (images,), (labels,) = batch["xs"], batch["ys"]
        logits = self.net(images)
        loss = functional.cross_entropy(logits, labels)
        return {"loss": loss, "accuracy": (logits.argmax(1) == labels).float().mean()}

    def evaluate(self, batch: Mapping[str, list[Tensor]]) -> Mapping[str, Tensor]:
        """Returns one value per picture, (B,); roost records the means: valid/loss, test/loss, ..."""
        (images,), (labels,) = batch["xs"], batch["ys"]
        logits = self.net(images)
        loss = functional.cross_entropy(logits, labels, reduction="none")
        return {"loss": loss, "accuracy": (logits.argmax(1) == labels).float()}

    def predict(self, batch: Mapping[str, list[Tensor]]) -> Mapping[str, Tensor]:
        """Called by `roost predict`: returns the digit of each picture, and its probability."""
        best = self.net(batch["xs"][0]).softmax(1).max(1)
        return {"digit": best.indices, "probability": best.values}
