"""The UCI digits, 1,797 pictures of 8x8 pixels: they come with scikit-learn, nothing is downloaded."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor

import roost


class Digits(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Pictures (1, 8, 8) with values from 0 to 1, and labels (); each picture is shifted at random.

    Args:
        images: All pictures, (N, 8, 8).
        labels: All labels, (N,).
        shift: Largest shift of a picture in pixels, in each direction; 0: no shift.
    """

    def __init__(self, images: Tensor, labels: Tensor, *, shift: int) -> None:
        self.padded = torch.nn.functional.pad(images.unsqueeze(1), [shift] * 4)
        self.labels, self.shift = labels, shift
        self.draws_randomness = shift > 0  # if nothing is drawn, roost need not seed each sample

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # roost seeds torch, NumPy and Python for each sample by (seed, epoch, index): the same shifts for
        # any number of loader workers, and after every `roost continue`.
        top, left = torch.randint(2 * self.shift + 1, (2,)).tolist() if self.shift else (0, 0)
        return self.padded[index, :, top : top + 8, left : left + 8], self.labels[index]


class Dataset(roost.Dataset):
    """Splits the digits into training, validation and test."""

    def build(self) -> roost.Data:
        """The same split in every run: its generator does not depend on the seed of the run."""
        settings = self.args["digits"]
        pixels, labels = load_digits(return_X_y=True)
        images = torch.from_numpy(pixels).float().reshape(-1, 8, 8) / 16
        targets = torch.from_numpy(labels).long()
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(settings["split_seed"]))
        test, valid, train = order.split([360, 180, len(order) - 540])
        return roost.Data(
            train=Digits(images[train], targets[train], shift=settings["shift"]),
            valid=Digits(images[valid], targets[valid], shift=0),
            test=Digits(images[test], targets[test], shift=0),
            info={"classes": 10},
        )
