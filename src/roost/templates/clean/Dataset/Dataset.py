"""The data: generated here, so that the project trains before you add your own data."""

import torch
from torch.utils.data import TensorDataset

import roost


class Dataset(roost.Dataset):
    """Returns map-style data sets (`__len__`, `__getitem__`): roost shuffles and resumes them exactly."""

    def build(self) -> roost.Data:
        """Generates noisy sums: y = x . w + noise."""
        generator = torch.Generator().manual_seed(0)
        features = self.args["model"]["features"]
        x = torch.randn(1200, features, generator=generator)
        y = x @ torch.arange(1.0, features + 1) + 0.1 * torch.randn(1200, generator=generator)
        return roost.Data(train=TensorDataset(x[:1000], y[:1000]), valid=TensorDataset(x[1000:], y[1000:]))
