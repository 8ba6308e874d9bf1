"""Prints the accuracy on the test set, overall and for each digit (evaluate.py of CornerNet-Lite).

`-c ID` selects a checkpoint, like --testiter there; `roost show runs/NAME` lists them.

roost analyze runs/NAME -s evaluate
"""

import torch


@torch.no_grad()
def experience(self):
    """`self` has .model .data .batches() .checkpoint .log .save() and more; the returned value is printed,
    and kept in the package."""
    classes = self.data.info["classes"]
    total, correct = torch.zeros(2, classes, dtype=torch.float64)
    for batch in self.batches("test"):
        (images,), (labels,) = batch["xs"], batch["ys"]
        hits = self.model.net(images).argmax(1) == labels
        total += labels.bincount(minlength=classes).cpu()
        correct += labels[hits].bincount(minlength=classes).cpu()
    for label, share in enumerate((correct / total).tolist()):
        print(f"{label}  {int(total[label]):4}  {share:.4f}")
    accuracy = float(correct.sum() / total.sum())
    print(f"all  {int(total.sum())}  {accuracy:.4f}")
    return {"step": self.checkpoint.step if self.checkpoint else 0, "accuracy": accuracy}
