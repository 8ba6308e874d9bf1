"""How often the network is right, overall and for each class.

roost analyze runs/NAME -s accuracy
"""

import torch


@torch.no_grad()
def experience(self):
    """Counts over the test set. `self` has .model .data .batches() .log .save() and more; what is returned is
    printed, and kept in the package."""
    classes = self.data.info["classes"]
    seen, right = torch.zeros(2, classes, dtype=torch.float64)
    for images, labels in self.batches("test"):
        hits = self.model.net(images).argmax(1) == labels
        seen += labels.bincount(minlength=classes).cpu()
        right += labels[hits].bincount(minlength=classes).cpu()
    shares = (right / seen).tolist()  # nan for a class that does not occur
    print("class  samples  accuracy")
    for label, share in enumerate(shares):
        print(f"{label:5}  {int(seen[label]):7}  {share:8.4f}")
    overall = float(right.sum() / seen.sum())
    print(f"  all  {int(seen.sum()):7}  {overall:8.4f}")
    return {"accuracy": overall, "classes": shares}
