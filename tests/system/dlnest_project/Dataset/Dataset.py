"""Samples that all three generators change."""

import random

import numpy as np
import torch
from DLNest.Common.DatasetBase import DatasetBase
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset


class Points(TorchDataset):
    def __init__(self, number, augmented):
        self.number, self.augmented = number, augmented

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        x = torch.linspace(-1, 1, 6) * (index % 7 - 3)
        if self.augmented:
            x = x + 0.1 * torch.randn(6) + 0.1 * np.random.rand() + 0.1 * random.random()
        return x, int(index % 7 > 3)


class Dataset(DatasetBase):
    def init(self, args):
        number = 44 + (args["more_on_rank_1"] if self._status.rank == 1 else 0)
        train = DataLoader(Points(number, True), batch_size=4, shuffle=True, num_workers=args["num_workers"])
        valid = DataLoader(Points(24, True), batch_size=4, num_workers=args["num_workers"])
        return {"inputs": 6}, train, valid
