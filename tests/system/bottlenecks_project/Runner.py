"""A classifier of points."""

from torch import nn
from torch.nn import functional

import roost


class Classifier(roost.Runner):
    def build(self):
        features, width = self.args["features"], self.args["width"]
        self.net = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def loss(self, batch):
        points, labels = batch
        logits = self.net(points)
        return {
            "loss": functional.cross_entropy(logits, labels),
            "accuracy": (logits.argmax(1) == labels).float().mean(),
        }

    def evaluate(self, batch):
        points, labels = batch
        logits = self.net(points)
        return {
            "loss": functional.cross_entropy(logits, labels, reduction="none"),
            "accuracy": (logits.argmax(1) == labels).float(),
        }
