"""A package that has learned handwritten digits, with two test sets whose samples have ids and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roost.package.package import PackageFolder
from tests.project.trained import trained

# The digits of scikit-learn, which takes two seconds to be imported: dozens of processes read them.
DATASET = """
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import roost
import torch
from torch.utils.data import TensorDataset

class Digits(TensorDataset):
    def __init__(self, x, y, prefix):
        super().__init__(torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y))
        self.ids = [f"{prefix}/{number:04d}" for number in range(len(x))]
        self.groups = {
            "writer": [None if number % 11 == 0 else f"writer {number % 7}" for number in range(len(x))],
            "digit": y.tolist(),
        }

class Dataset(roost.Dataset):
    def build(self):
        file = Path(find_spec("sklearn").origin).parent / "datasets" / "data" / "digits.csv.gz"
        table = np.loadtxt(file, delimiter=",")
        x, y = table[:, :-1], table[:, -1].astype(int)
        noisy = x + np.random.default_rng(0).normal(0, 4, x.shape)
        return roost.Data(
            train=Digits(x[:1000], y[:1000], "train"),
            valid=Digits(x[1000:1200], y[1000:1200], "valid"),
            test={
                "clean": Digits(x[1200:], y[1200:], "clean"),
                "noisy": Digits(noisy[1250:], y[1250:], "noisy"),
            },
        )
"""

RUNNER = """
import time

import roost
import torch
from torch import nn

class Runner(roost.Runner):
    worst_cases = [("loss", "max", 7), ("correct", "min", 3)]

    def build(self):
        self.model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def loss(self, batch):
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def test(self, batch, temperature=1.0, noise=0):
        images, digits = batch
        scores = self.model(images) / temperature + noise * torch.randn(len(images), 10)
        said = scores.argmax(1)
        time.sleep(self.args["batch_seconds"])
        return {
            "loss": nn.functional.cross_entropy(scores, digits, reduction="none"),
            "correct": said == digits,
            "mean_score": scores.mean(),
            "scores": scores,
            "text": [f"digit {one}" for one in said.tolist()],
            "picture": [
                roost.Media("image", image.view(8, 8)) if number % 16 == 0 else None
                for number, image in enumerate(images)
            ],
        }

    def summarize(self, values, split):
        if "correct" not in values:  # of a validation, which measures what evaluate returns
            return {}
        return {"error_rate": 1 - values["correct"].double().mean()}
"""


def digits_package(folder: Path, **options: Any) -> PackageFolder:
    """A package below ``folder``, trained for a few steps, with a checkpoint after every fifth."""
    settings = {
        "dataset": DATASET,
        "runner": RUNNER,
        "max_steps": 15,
        "threads": 1,
        "batch_seconds": 0.0,
        "data": {"batch_size": 100, "test": {"batch_size": 32}, "num_workers": 0},
        "checkpoint": {"every": "5", "fast": 9, "best": [{"monitor": "valid/loss", "mode": "min"}]},
        "validate_every": "5",
    }
    return trained(folder, **{**settings, **options})
