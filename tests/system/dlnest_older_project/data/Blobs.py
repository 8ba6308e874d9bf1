"""Blobs of points; the batches are lists."""

import torch
from DLNest.Common.DatasetBase import DatasetBase
from torch.utils.data import DataLoader, TensorDataset


class Blobs(DatasetBase):
    def __init__(self, _envType="CPU"):
        super().__init__(_envType=_envType)

    def init(self, args):
        made = torch.Generator().manual_seed(0)
        y = torch.arange(60) % args["classes"]
        x = torch.randn(60, 4, generator=made) + 2 * torch.eye(4)[y]
        train, valid = TensorDataset(x[:40], y[:40]), TensorDataset(x[40:], y[40:])
        return {"classes": args["classes"]}, DataLoader(train, 4, shuffle=True), DataLoader(valid, 5)
