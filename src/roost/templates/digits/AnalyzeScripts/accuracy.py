"""Prints the accuracy, overall and for each class.

roost analyze runs/NAME -s accuracy
"""

import torch


@torch.no_grad()
def experience(self):
    """Counts correct samples of the test set. `self` has .model .data .batches() .log .save() and more; the
    returned value is printed, and kept in the package."""
    classes = self.data.info["classes"]
    total, correct = torch.zeros(2, classes, dtype=torch.float64)
    for images, labels in self.batches("test"):
        hits = self.model.net(images).argmax(1) == labels
        total += labels.bincount(minlength=classes).cpu()
        correct += labels[hits].bincount(minlength=classes).cpu()
    accuracies = (correct / total).tolist()  # nan for a class that does not occur
    print("class  samples  accuracy")
    for label, accuracy in enumerate(accuracies):
        print(f"{label:5}  {int(total[label]):7}  {accuracy:8.4f}")
    overall = float(correct.sum() / total.sum())
    print(f"  all  {int(total.sum()):7}  {overall:8.4f}")
    return {"accuracy": overall, "classes": accuracies}
