"""The model that is trained: network, loss and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from Model.Net import Net
from torch import Tensor
from torch.nn import functional

import roost


class Runner(roost.Runner):
    """Classifies digits. A batch is (images (B, 1, 28, 28), labels (B,))."""

    def build(self) -> None:
        """Called once, seeded; afterwards roost moves everything to the device."""
        self.net = Net(classes=self.info["classes"], **self.args["model"])

    def loss(self, batch: tuple[Tensor, Tensor]) -> Mapping[str, Tensor]:
        """Called at each training step; "accuracy" is recorded as train/accuracy."""
        images, labels = batch
        logits = self.net(images)
        loss = functional.cross_entropy(logits, labels)
        return {"loss": loss, "accuracy": (logits.argmax(1) == labels).float().mean()}

    def evaluate(self, batch: tuple[Tensor, Tensor]) -> Mapping[str, Tensor]:
        """Returns one value per sample, (B,); roost records the means: valid/loss, test/loss, ..."""
        images, labels = batch
        logits = self.net(images)
        loss = functional.cross_entropy(logits, labels, reduction="none")
        return {"loss": loss, "accuracy": (logits.argmax(1) == labels).float()}

    def visualize(self, batch: tuple[Tensor, Tensor]) -> Mapping[str, roost.Media]:
        """Draws 16 digits, wrong predictions first; the picture is kept in the package, in media/."""
        if find_spec("matplotlib") is None:
            return {}
        from matplotlib.figure import Figure

        images, labels = batch
        guesses = self.net(images).argmax(1)
        figure = Figure(figsize=(5, 5.6), layout="constrained")
        shown = (guesses == labels).int().argsort(stable=True)[:16].tolist()
        for axes, i in zip(figure.subplots(4, 4).flat, shown, strict=False):
            right, guess = int(labels[i]), int(guesses[i])
            axes.imshow(images[i, 0].cpu().numpy(), cmap="gray_r")
            axes.set_title(f"{right}" if guess == right else f"{right}, not {guess}", fontsize=9)
            axes.set_axis_off()
        return {"samples": figure}
