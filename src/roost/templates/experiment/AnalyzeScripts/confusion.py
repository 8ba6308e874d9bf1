"""Which digit is taken for which, clean and noisy.

roost analyze runs/NAME -s confusion
"""

import torch


@torch.no_grad()
def experience(self):
    """`self` has .model .data .batches() .log .save() and more; what is returned is printed, and kept in the
    package. Rows are what a digit is, columns what it is taken for."""
    found = {}
    for name in ("clean", "noisy"):
        counts = torch.zeros(10, 10, dtype=torch.int64)
        for images, labels in self.batches(f"test/{name}"):
            guesses = self.model.model(images).argmax(1)
            counts += torch.bincount(10 * labels + guesses, minlength=100).reshape(10, 10).cpu()
        accuracy = float(counts.trace() / counts.sum())
        print(f"{name}: {accuracy:.4f} of {int(counts.sum())}\n{counts.numpy()}")
        found[name] = accuracy
    return found
