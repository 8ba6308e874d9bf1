"""Prints the weights that the model has learned.

roost analyze runs/NAME -s weights
"""


def experience(self):
    """`self` has .model .data .batches() .log .save() and more; the returned value is kept in the package."""
    weights = self.model.net.weight[0].tolist()
    print("the weights should be 1, 2, 3, ...:", ", ".join(f"{weight:.2f}" for weight in weights))
    return {"weights": weights}
