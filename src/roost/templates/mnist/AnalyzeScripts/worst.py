"""The test samples with the highest loss, as one picture.

roost analyze runs/NAME -s worst
"""

from importlib.util import find_spec

import torch
from torch.nn import functional

COUNT = 25


@torch.no_grad()
def experience(self):
    """Returns the samples with the highest loss, highest first; `index` is the index in the test set."""
    losses, guesses = [], []
    for images, labels in self.batches("test"):
        logits = self.model.net(images)
        losses.append(functional.cross_entropy(logits, labels, reduction="none").cpu())
        guesses.append(logits.argmax(1).cpu())
    losses, guesses = torch.cat(losses), torch.cat(guesses)
    worst = [
        {"index": i, "label": int(self.data.test[i][1]), "guess": int(guesses[i]), "loss": float(losses[i])}
        for i in losses.argsort(descending=True)[:COUNT].tolist()
    ]
    if find_spec("matplotlib") is None:
        print("no picture without matplotlib: pip install 'roost[demo]'")
    else:
        self.save("worst", picture(worst, self.data.test))
    return worst


def picture(worst, samples):
    """Draws five samples per row, each with its label, prediction and loss."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 7), layout="constrained")
    for position, sample in enumerate(worst, 1):
        axes = figure.add_subplot(5, 5, position)
        axes.imshow(samples[sample["index"]][0][0].numpy(), cmap="gray_r")
        verdict = "right" if sample["guess"] == sample["label"] else f"not {sample['guess']}"
        axes.set_title(f"{sample['label']}, {verdict}\nloss {sample['loss']:.2f}", fontsize=8)
        axes.set_axis_off()
    return figure
