"""Points on circles: the number of them is in a file of the project's folder, which the package is within."""

import json
from pathlib import Path

import numpy as np
import torch
from DLNest.Common.DatasetBase import DatasetBase
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset


class Points(TorchDataset):
    def __init__(self, number, levels):
        self.number, self.levels = number, levels

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        angle = torch.rand(()) * 6.28
        level = self.levels[index % len(self.levels)] + 0.05 * np.random.randn()
        return torch.stack([angle.cos(), angle.sin()]) * level, index


def as_tuple(samples):
    """A batch is a tuple with a dict in it."""
    points, numbers = zip(*samples, strict=True)
    return torch.stack(points), {"numbers": torch.tensor(numbers)}


class Circles(DatasetBase):
    def init(self, args):
        number = json.loads((Path.cwd() / "../.." / "sizes.json").read_text())["points"]
        levels = json.loads(Path("configs/levels.json").read_text())["levels"]
        train, valid = Points(number, levels), Points(number // 2, levels)
        sampler = self.getSampler(train)
        options = {"batch_size": args["batch_size"], "collate_fn": as_tuple}
        return (
            {"size": 2},
            DataLoader(
                train, shuffle=sampler is None, sampler=sampler, num_workers=args["num_workers"], **options
            ),
            DataLoader(valid, **options),
        )
