"""The confusion matrices of the clean and the noisy test digits.

roost analyze runs/NAME -s confusion
"""

import torch


@torch.no_grad()
def experience(self):
    """`self` has .model .data .batches() .log .save() and more; the returned value is printed, and kept in
    the package. Rows are labels, columns are predictions."""
    accuracies = {}
    for name in ("clean", "noisy"):
        counts = torch.zeros(10, 10, dtype=torch.int64)
        for images, labels in self.batches(f"test/{name}"):
            predictions = self.model.model(images).argmax(1)
            counts += torch.bincount(10 * labels + predictions, minlength=100).reshape(10, 10).cpu()
        accuracy = float(counts.trace() / counts.sum())
        print(f"{name}: {accuracy:.4f} of {int(counts.sum())}\n{counts.numpy()}")
        accuracies[name] = accuracy
    return accuracies
