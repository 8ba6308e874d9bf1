"""The confusion matrix of the test set: a table and a picture.

roost analyze runs/NAME -s confusion
"""

from importlib.util import find_spec

import torch


@torch.no_grad()
def experience(self):
    """Returns the matrix: rows are labels, columns are predictions of the network."""
    classes = self.data.info["classes"]
    matrix = torch.zeros(classes, classes, dtype=torch.long)
    for images, labels in self.batches("test"):
        predictions = self.model.net(images).argmax(1)
        matrix += (
            (labels * classes + predictions).bincount(minlength=classes**2).reshape(classes, classes).cpu()
        )
    if find_spec("matplotlib") is None:
        print("no picture without matplotlib: pip install 'roost[demo]'")
    else:
        self.save("confusion", picture(matrix))
    return matrix


def picture(matrix):
    """Draws the matrix: colours show the share of a row, numbers show counts."""
    from matplotlib.figure import Figure

    shares = matrix / matrix.sum(1, keepdim=True).clamp(min=1)
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    figure.colorbar(axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1), label="share of the class")
    for row, column in matrix.nonzero().tolist():
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, int(matrix[row, column]), ha="center", va="center", fontsize=8, color=color)
    axes.set(xlabel="prediction", ylabel="label", xticks=range(len(matrix)), yticks=range(len(matrix)))
    return figure
