"""How often the network is right on the test set, overall and for each digit (evaluate.py of CornerNet-Lite).

`-c ID` takes one checkpoint, as its --testiter does; `roost show runs/NAME` lists them.

roost analyze runs/NAME -s evaluate
"""

import torch


@torch.no_grad()
def experience(self):
    """`self` has .model .data .batches() .checkpoint .log .save() and more; what is returned is printed, and
    kept in the package."""
    classes = self.data.info["classes"]
    seen, right = torch.zeros(2, classes, dtype=torch.float64)
    for batch in self.batches("test"):
        (images,), (labels,) = batch["xs"], batch["ys"]
        hits = self.model.net(images).argmax(1) == labels
        seen += labels.bincount(minlength=classes).cpu()
        right += labels[hits].bincount(minlength=classes).cpu()
    for label, share in enumerate((right / seen).tolist()):
        print(f"{label}  {int(seen[label]):4}  {share:.4f}")
    accuracy = float(right.sum() / seen.sum())
    print(f"all  {int(seen.sum())}  {accuracy:.4f}")
    return {"step": self.checkpoint.step if self.checkpoint else 0, "accuracy": accuracy}
