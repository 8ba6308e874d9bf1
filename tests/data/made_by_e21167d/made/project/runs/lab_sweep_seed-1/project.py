"""Points in three classes, each jittered anew whenever it is read, and a small network."""

import random
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import roost


class Points(torch.utils.data.Dataset):
    """Random points; one of them is not finite."""

    def __init__(self, size, seed, jitter=0.0, nan=None):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 6, generator=generator)
        self.y = self.x[:, :3].argmax(1)
        self.jitter = jitter
        if nan is not None:
            self.x[nan] = torch.nan

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        x = self.x[index] + self.jitter * torch.randn(6)
        x = x * (1 + self.jitter * np.random.rand()) + self.jitter * random.gauss(0, 1)
        return x.float(), self.y[index]


class Dataset(roost.Dataset):
    def build(self):
        return roost.Data(
            train=Points(48, 1, 0.1, self.args["bad"]["nan"]),
            valid={"clean": Points(20, 2), "noisy": Points(12, 3, 0.3)},
            test=Points(16, 4),
            info={"classes": 3},
        )

    def predict(self, source):
        return [torch.tensor([float(word) for word in line.split(",")]) for line in Path(source).read_text().split()]


class Runner(roost.Runner):
    def build(self):
        width = self.args["width"]
        self.body = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Dropout(0.2))
        self.head = torch.nn.Linear(width, self.info["classes"])
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def logits(self, x):
        return self.head(self.body(x))

    def loss(self, batch):
        if Path(self.args["slow"]).exists():
            time.sleep(0.05)
        if self.progress.step + 1 == self.args["bad"]["error_at"]:
            raise ValueError("the error of this step")
        x, y = batch
        self.seen += len(x)
        logits = self.logits(x + 0.05 * torch.randn_like(x))
        return {"loss": functional.cross_entropy(logits, y), "accuracy": (logits.argmax(1) == y).float().mean()}

    def evaluate(self, batch):
        x, y = batch
        logits = self.logits(x)
        hits = (logits.argmax(1) == y).float()
        return {"loss": functional.cross_entropy(logits, y, reduction="none"), "accuracy": hits}

    def predict(self, batch):
        logits = self.logits(batch)
        return {"label": logits.argmax(1), "logits": logits}

    def visualize(self, batch):
        x, y = batch
        logits = self.logits(x)
        return {
            "scores": roost.Media("matrix", logits),
            "values": roost.Media("histogram", logits, bins=4),
            "labels": f"labels {y.tolist()}",
        }
