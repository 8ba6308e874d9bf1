"""How often the model is right on the validation set, and what it was."""

import torch

import roost


@torch.no_grad()
def experience(self):
    hits = torch.hstack([self.model.evaluate(batch)["accuracy"] for batch in self.batches("valid/clean")])
    print("looked at", len(hits))
    self.save("hits", roost.Media("histogram", hits, bins=2))
    return {
        "accuracy": float(hits.mean()),
        "step": self.checkpoint.step,
        "seen": int(self.model.seen),
        "rows": len(self.log["train/loss"][0]),
    }
