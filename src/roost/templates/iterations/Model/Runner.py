"""What is trained: the network, its loss, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping

from Model.Net import Net
from torch import Tensor
from torch.nn import functional

import roost


class Runner(roost.Runner):
    """Tells digits apart. A batch is what the sampling function gives: {"xs": [images], "ys": [labels]}."""

    def build(self) -> None:
        """Called once, seeded; afterwards roost moves everything to the device."""
        self.net = Net(classes=self.info["classes"], **self.args["model"])

    def loss(self, batch: Mapping[str, list[Tensor]]) -> Mapping[str, Tensor]:
        """Called in each step; "accuracy" becomes train/accuracy."""
        (images,), (labels,) = batch["xs"], batch["ys"]
        logits = self.net(images)
        loss = functional.cross_entropy(logits, labels)
        return {"loss": loss, "accuracy": (logits.argmax(1) == labels).float().mean()}

    def evaluate(self, batch: Mapping[str, list[Tensor]]) -> Mapping[str, Tensor]:
        """One value per picture, (B,); roost takes the means: valid/loss, valid/accuracy, test/..."""
        (images,), (labels,) = batch["xs"], batch["ys"]
        logits = self.net(images)
        loss = functional.cross_entropy(logits, labels, reduction="none")
        return {"loss": loss, "accuracy": (logits.argmax(1) == labels).float()}

    def predict(self, batch: Mapping[str, list[Tensor]]) -> Mapping[str, Tensor]:
        """For `roost predict`: the digit of each picture, and how sure it is."""
        surest = self.net(batch["xs"][0]).softmax(1).max(1)
        return {"digit": surest.indices, "probability": surest.values}
