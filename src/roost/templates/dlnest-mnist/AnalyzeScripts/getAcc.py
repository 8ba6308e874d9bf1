"""Prints the accuracy on the validation pictures, overall and for each digit.

roost analyze Saves/NAME -s getAcc
"""

import torch


@torch.no_grad()
def experience(self):
    """`self` has .args .runner (and .model, the same) .dataset .log"""
    _, _, loader = self.dataset.init(self.args)
    net = self.runner.model
    net.eval()
    device = next(net.parameters()).device
    total, correct = torch.zeros(2, 10)
    for images, labels in loader:
        hits = net(images.to(device)).argmax(1).cpu() == labels
        total += labels.bincount(minlength=10)
        correct += labels[hits].bincount(minlength=10)
    print("digit  pictures  accuracy")
    for digit in range(10):
        print(f"{digit:5}  {int(total[digit]):8}  {correct[digit] / total[digit]:8.4f}")
    print(f"  all  {int(total.sum()):8}  {correct.sum() / total.sum():8.4f}")
    return {"accuracy": (correct.sum() / total.sum()).item()}
