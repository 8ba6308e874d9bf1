"""The data: made here, so that the project trains before you have any of your own."""

import torch
from torch.utils.data import TensorDataset

import roost


class Dataset(roost.Dataset):
    """Give map-style sets (`__len__`, `__getitem__`): roost shuffles them, and continues them exactly."""

    def build(self) -> roost.Data:
        """Noisy sums: y = x . w + noise."""
        chance = torch.Generator().manual_seed(0)
        features = self.args["model"]["features"]
        x = torch.randn(1200, features, generator=chance)
        y = x @ torch.arange(1.0, features + 1) + 0.1 * torch.randn(1200, generator=chance)
        return roost.Data(train=TensorDataset(x[:1000], y[:1000]), valid=TensorDataset(x[1000:], y[1000:]))
