"""The data: random points, to be replaced by your own."""

import torch
from DLNest.Common.DatasetBase import DatasetBase
from torch.utils.data import DataLoader, TensorDataset


class Dataset(DatasetBase):
    def init(self, args: dict):
        """Returns what the runner is told of the data, the training loader and the validation loader."""
        settings = args["dataset_config"]
        train, valid = (self.points(settings["samples"], seed) for seed in (0, 1))
        sampler = self.getSampler(train)  # None unless several ranks train
        train_loader = DataLoader(
            train, batch_size=settings["batch_size"], shuffle=sampler is None, sampler=sampler
        )
        return {"inputs": 2}, train_loader, DataLoader(valid, batch_size=settings["batch_size"])

    def points(self, number, seed):
        """Points (number, 2), and whether they are within a circle."""
        x = torch.randn(number, 2, generator=torch.Generator().manual_seed(seed))
        return TensorDataset(x, (x.square().sum(1) < 1.4).float())
